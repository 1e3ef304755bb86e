"""The wait between being told to stop and telling vLLM, in which no request is lost.

vLLM aborts what reaches it once it stops. So gateways first have to see that this engine takes no
more, and what it runs has to end.
"""

import threading
import time
from collections.abc import Callable

from launcher.status.metrics import Numbers

# A gateway looks once a second, and its look takes some time on a busy host.
NOTICE_S = 2.5
LOOK_EVERY_S = 0.25
IDLE_LOOKS = 2  # a request that is being tokenised is not counted yet


def quiet(numbers: Callable[[], Numbers], wait_s: float, ended: threading.Event) -> bool:
    """Wait until gateways had time to notice and vLLM runs nothing. False after `wait_s`, or when
    vLLM ended."""
    end = time.monotonic() + wait_s
    if ended.wait(min(NOTICE_S, wait_s)):
        return False
    idle = 0
    while time.monotonic() < end:
        idle = idle + 1 if is_idle(numbers()) else 0
        if idle == IDLE_LOOKS:
            return True
        if ended.wait(LOOK_EVERY_S):
            return False
    return False


def is_idle(numbers: Numbers) -> bool:
    """Pure: vLLM says that nothing runs or waits in it; an engine that says nothing may be busy."""
    return numbers.running == 0 and numbers.waiting == 0
