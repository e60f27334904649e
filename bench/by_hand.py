#!/usr/bin/python3
"""by_hand: what people write instead: INSERT … ON CONFLICT before the work, UPDATE after it.

    by_hand.py dsn=DSN seconds=3 [threads=64] [connections=16]

One process with a pool of connections and a thread for each caller. Prints the pairs it made.
"""
import json
import queue
import sys
import threading
import time

import psycopg2

PAYLOAD = json.dumps({"amount": 1999, "currency": "EUR", "order": "ord_7f3a9c21",
    "customer": {"id": "cus_5521", "email": "someone@example.com"}, "items": [1, 2, 3]})
TABLE = ("CREATE TABLE IF NOT EXISTS by_hand (key text PRIMARY KEY, payload text NOT NULL,"
    " status text NOT NULL, answer text)")


def once(pool, key):
    """One request: is it new? Then do it and keep the answer."""
    connection = pool.get()
    try:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO by_hand VALUES (%s, %s, 'started') ON CONFLICT DO NOTHING",
                (key, PAYLOAD))
            assert cursor.rowcount == 1
            cursor.execute("UPDATE by_hand SET status = 'done', answer = %s WHERE key = %s",
                ('{"charge":"ch_1"}', key))
    finally:
        pool.put(connection)


def caller(pool, first, until, made):
    number = 0
    while time.monotonic() < until:
        once(pool, f"{first}-{number}")
        number += 1
    made.append(number)


def main():
    options = {"threads": "64", "connections": "16", "seconds": "3"}
    options.update(word.split("=", 1) for word in sys.argv[1:])
    pool, made = queue.SimpleQueue(), []
    for number in range(int(options["connections"])):
        connection = psycopg2.connect(options["dsn"])
        connection.autocommit = True
        if number == 0:
            with connection.cursor() as cursor:
                cursor.execute(TABLE)
        pool.put(connection)
    begun = time.monotonic()
    threads = [threading.Thread(target=caller, args=(pool, f"{time.time_ns()}-{number}",
        begun + float(options["seconds"]), made)) for number in range(int(options["threads"]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    print(json.dumps({"pairs": sum(made), "seconds": seconds}))


if __name__ == "__main__":
    main()
