"""Files of records: one object a line, plain or compressed, or CUTracer's text."""
