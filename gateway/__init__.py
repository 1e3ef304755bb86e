"""The OpenAI-compatible gateway between nginx and vLLM: keys, limits, admission and a byte relay.

Where things live, in the order in which a request meets them:

    start and stop   __main__ settings app state background server drain watchdog
    the door         routes/ cors auth keys keyfields limits/
    the queue        admission fairqueue gate bound
    the answer       relay client answer lane streams sse usage upstream/ health
    what is said     errors forms log lines
    what is counted  metrics/ ledger/
    several workers  workers worker shared/
"""

__version__ = "0.1.0"
