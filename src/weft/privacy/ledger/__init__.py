"""How many sums were opened and shown, over all runs, and how many the next run will take."""

from weft.privacy.ledger.ledger_file import Book, Cohort, Pages, Run, read_books
from weft.privacy.ledger.run_booking import Account, Ledger, count_sums

__all__ = ["Account", "Book", "Cohort", "Ledger", "Pages", "Run", "count_sums", "read_books"]
