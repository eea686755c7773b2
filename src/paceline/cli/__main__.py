"""`python -m paceline.cli`: where no script is installed."""

from paceline.cli import main

main()
