"""Starts vLLM from environment variables, watches it and keeps its exit code.

    run, life, supervise, guard   one start: the process, its signals, its end
    preflight, prediction         what must hold before it, and what it will need
    readiness, healthcheck        when it serves
    model/                        which model, and its download
    options/                      settings, and vLLM's arguments made of them
    host/                         GPUs, drivers, cores, compile caches
    cudagraphs/                   what rules graphs out, and the workers' proof of them
    status/                       phases, reasons, the status page and metrics

Standard library only, so that the package runs in any vLLM image and in local mode as it is.
Imports go one way: __main__ → run → life → the folders → console.
"""
