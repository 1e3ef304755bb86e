"""What the gateway costs on the data path, beside direct, nginx and a byte copy.

fake        the engine: one process, one timer for all streams
load        the clients, on the same core as the engine
contenders  the processes that stand between them, each on the other core
measure     one number, and the order in which the numbers are taken
books       do the gateway's metrics and ledger say what was sent?
report      medians, ratios, tables
soak        an hour of mixed load: does anything grow?
"""
