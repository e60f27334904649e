-- Version 6: the backlog by scope and tenant (docs/formats/postgres.md). `once migrate` runs this in
-- one transaction, with search_path set to the schema of the store.

-- What waits for a person is counted for the metrics: of each kind and status a few, oldest first.
CREATE INDEX records_parked ON records (kind, status, updated_at)
    WHERE status IN ('unknown', 'dead');
