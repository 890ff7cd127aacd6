"""The signal that what a rule was shown no longer stands."""


class Missed(Exception):
    """A guarded write hit nothing, or a row that had to be new was there: look again and decide again."""
