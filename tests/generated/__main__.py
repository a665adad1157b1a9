"""Writes every generated document to a folder: ``PYTHONPATH=tests python -m generated FOLDER``.

Knows nothing of how they are made.
"""

import sys
from pathlib import Path

from generated import DOCUMENTS

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, document in DOCUMENTS.items():
    (folder / name).write_bytes(document.make())
