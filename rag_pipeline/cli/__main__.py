"""`python -m rag_pipeline.cli`, the same as `rag-pipeline`. Knows nothing else."""

import sys

from rag_pipeline.cli import main

if __name__ == "__main__":  # a child process that is spawned imports this module again
    sys.exit(main())
