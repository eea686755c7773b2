"""What clouds can be asked before machines are paid for, and after: read-only, AWS alone.

The cloud's own library is imported when a question is asked (`pip install boto3`). What
the answers mean is judged in `verdicts`, which needs none.
"""
