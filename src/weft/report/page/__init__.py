"""The report of a run or a comparison: one HTML file that needs nothing else."""

from weft.report.page.html_file import PAGE, add_page, write_page

__all__ = ["PAGE", "add_page", "write_page"]
