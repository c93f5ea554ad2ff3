# SPDX-License-Identifier: Apache-2.0
"""What a library of reshard_dlpack.Library refuses, with a remedy."""


def refused(call, words):
    try:
        call()
    except ValueError as error:
        assert words in str(error) and "Fix: " in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")
