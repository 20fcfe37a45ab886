"""Evidence to a page: tables, figures, pictures of predicted distributions."""
