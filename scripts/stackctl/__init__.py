"""The operator's CLI of vllm-compose, standard library only (Python 3.11 or newer).

Each row imports from those below it, and from its own where it has to:

    __main__                                             the command line
    swap                                                 up with another model
    up                                                   the verb with the most steps
    usage  pin  drain                                    a report; digests; an engine let go
    lifecycle  chat  fit                                 the other verbs
    doctor.examine  doctor.seen  doctor.report           facts gathered, judged, printed
    local  compose                                       the two kinds of stack, one interface
    programs  supervisor  ports  containers              their parts
    wait  status  canary  caller                         what is asked through nginx
    init  keys  setup  engine_env  doctor.envcheck       files, environments
    rollback  swapplan                                   .env, back and forth
    doctor.gpumemory  doctor.gpus  doctor.toolkit  doctor.system  doctor.xids
    doctor.cards                                         a GPU's host: read and judged
    doctor.checks  doctor.filechecks                     judges
    doctor.facts  mode  nginx  venv  pins                readers
    config  envfile  registry  template  http  lock  reasons  restrictions
    console  errors  layout  names  process  spawn
"""
