# SPDX-License-Identifier: Apache-2.0
"""How mch_dcp.py and dcp_folder.py say what is wrong. Needs no torch."""


class Refused(Exception):
    """What is wrong, and the remedy."""


def first_line(error):
    return str(error).split("\n")[0][:500]
