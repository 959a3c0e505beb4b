"""python -m ttanalyze"""

from ttanalyze.cli import main

main()
