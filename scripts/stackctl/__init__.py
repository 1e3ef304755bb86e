"""The operator's CLI of vllm-compose, standard library only (Python 3.11 or newer).

Layers, each importing only from those below it:

    __main__
    up  lifecycle  doctor  chat          verbs
    local  compose  status  canary  wait effects
    init  keys  setup  engine_env        files
    facts → checks  mode  envfile        pure, but for facts
    config  names  layout  process  console  errors
"""
