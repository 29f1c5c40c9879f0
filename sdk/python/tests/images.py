# SPDX-License-Identifier: Apache-2.0
"""Images of the local cluster by the Python that they have. `python -m tests.images` exits with 3, and says why, if
none has this one."""

from __future__ import annotations

import sys

IMAGES = {(3, 11): "trireme.local/openmpi:4", (3, 13): "trireme.local/openmpi:5"}
IMAGE = IMAGES.get(sys.version_info[:2], "")
OTHER_IMAGE = next(image for version, image in IMAGES.items() if version != sys.version_info[:2])


def missing() -> str:
    """Why no function can be sent to pods from here; empty if it can."""
    if IMAGE:
        return ""
    version = "{}.{}".format(*sys.version_info[:2])
    known = " or ".join("python{}.{}".format(*other) for other in IMAGES)
    return f"no image of the local cluster has Python {version}: set PYTHON to {known}"


if __name__ == "__main__":
    if reason := missing():
        print(reason)
        sys.exit(3)
