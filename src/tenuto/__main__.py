"""`python -m tenuto` is the command line."""

from tenuto.cli.app import main

main()
