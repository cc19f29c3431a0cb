"""`flashrt chat`: a small terminal client. Knows the server by its HTTP interface alone."""
