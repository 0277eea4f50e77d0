"""How soon a job must tell of a rank that died."""

import os

SECONDS = 2


def report_seconds():
    """Processes of a busy machine wait for their turns: where three want each CPU, three times as
    long. The load is an average of the last minute."""
    return SECONDS * max(1, os.getloadavg()[0] / os.cpu_count())
