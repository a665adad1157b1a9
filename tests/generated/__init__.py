"""Documents, each with what a reader should get out of it, made anew wherever they are needed.

Knows nothing of how they are read.
"""

from generated.layouts import LAYOUTS
from generated.odd_pdfs import ODD_PDFS
from generated.texts import TEXTS

DOCUMENTS = {document.name: document for document in (*LAYOUTS, *ODD_PDFS, *TEXTS)}
