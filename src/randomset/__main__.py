"""`python -m randomset` is the command line."""

from randomset.cli import main

if __name__ == "__main__":
    main()
