"""Where the rows of Spark go: files, and tables of Delta Lake and Iceberg."""
