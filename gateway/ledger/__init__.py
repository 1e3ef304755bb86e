"""The usage ledger: requests and tokens per hour, key, model, route and outcome, in a database.

    Ledger.add ─▶ increments in memory ──every 0.25 s──▶ Batch ─▶ Store.write ─▶ SQLite, PostgreSQL
    (the loop, no I/O)                                   (a thread, one transaction, upserts)

`target` reads GATEWAY_USAGE_DB, `tables` is the schema, `engine` connects, `store` writes,
`ledger` counts and keeps time, `opening` puts them together, `report` reads (`python -m
gateway.ledger`).
"""
