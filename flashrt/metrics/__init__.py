"""One record per request, and what is made of it: log lines, totals, series for Prometheus."""
