"""Columns that are not plain numbers, or not to be used as they are: categories, dates, curves."""
