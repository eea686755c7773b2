"""What every reader of another tool's log needs: the contract, and the arithmetic behind facts.

`contract` says what a reader is and `recognise` finds the one that fits; `book` turns lines of
progress into a `ForeignRun`; `values`, `stamps` and `settings` read numbers, clocks and settings.
"""
