"""Programs for those who work on Tenuto."""
