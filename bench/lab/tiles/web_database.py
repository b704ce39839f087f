"""The database behind a web site: a PostgreSQL of people, events, who comes, and comments; pgbench with scripts of its own asks.

Nine tenths of what is asked are pages that are read; the rest are comments, new events, and people who say that they come.
"""

import os
import pwd
import shutil

from place import run, until

EVENTS, PEOPLE = 60_000, 40_000
PAGES_PER_SECOND = 12

SCHEMA = f"""
CREATE TABLE people (id int PRIMARY KEY, name text, about text);
CREATE TABLE events (id serial PRIMARY KEY, person int, starts timestamptz, title text, about text);
CREATE TABLE comments (id bigserial PRIMARY KEY, event int, person int, said timestamptz, words text);
CREATE TABLE coming (event int, person int, since timestamptz, PRIMARY KEY (event, person));
INSERT INTO people SELECT n, md5(n::text), repeat(md5((n * 7)::text), 10) FROM generate_series(1, {PEOPLE}) n;
INSERT INTO events (person, starts, title, about) SELECT (random() * {PEOPLE - 1})::int + 1, now() + random() * interval '90 days',
  md5(n::text), repeat(md5(random()::text), 30) FROM generate_series(1, {EVENTS}) n;
INSERT INTO comments (event, person, said, words) SELECT (random() * {EVENTS - 1})::int + 1, (random() * {PEOPLE - 1})::int + 1, now(),
  repeat(md5(random()::text), 6) FROM generate_series(1, {EVENTS} * 5) n;
INSERT INTO coming SELECT (random() * {EVENTS - 1})::int + 1, (random() * {PEOPLE - 1})::int + 1, now()
  FROM generate_series(1, {EVENTS} * 8) n ON CONFLICT DO NOTHING;
CREATE INDEX ON comments (event);
CREATE INDEX ON events (starts);
CREATE INDEX ON events (person);
CREATE INDEX ON coming (person);
VACUUM ANALYZE;
CHECKPOINT;
"""

DRAWN = f"""\\set event random_zipfian(1, {EVENTS}, 1.05)
\\set person random_zipfian(1, {PEOPLE}, 1.05)
\\set anywhere random(1, {EVENTS})
"""
SCRIPTS = {
    "home": (30, """SELECT id, title, starts FROM events WHERE starts > now() + :anywhere * interval '2 minutes' ORDER BY starts LIMIT 10;
SELECT about FROM events WHERE id = :anywhere;"""),
    "event": (45, """SELECT e.*, p.name FROM events e JOIN people p ON p.id = e.person WHERE e.id = :event;
SELECT c.words, p.name FROM comments c JOIN people p ON p.id = c.person WHERE c.event = :event ORDER BY c.said LIMIT 50;
SELECT count(*) FROM coming WHERE event = :event;"""),
    "person": (15, """SELECT * FROM people WHERE id = :person;
SELECT e.id, e.title FROM coming c JOIN events e ON e.id = c.event WHERE c.person = :person LIMIT 20;"""),
    "comment": (5, "INSERT INTO comments (event, person, said, words) VALUES (:event, :person, now(), repeat(md5(:anywhere::text), 6));"),
    "come": (4, "INSERT INTO coming VALUES (:event, :person, now()) ON CONFLICT DO NOTHING;"),
    "new": (1, "INSERT INTO events (person, starts, title, about) VALUES (:person, now() + interval '30 days', md5(:anywhere::text), repeat(md5(:event::text), 30));"),
}


def programs():
    """The newest of the distribution's."""
    return max((version for version in os.scandir("/usr/lib/postgresql")), key=lambda version: float(version.name)).path + "/bin"


def as_postgres(place, *words):
    """A command of PostgreSQL's user."""
    user = pwd.getpwnam("postgres")
    return run(*words, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", env={"PGHOST": str(place.work / "pg"), "PATH": os.environ["PATH"]})


def start(place, mount):
    """Makes a cluster, starts it and fills it."""
    folder, user = place.work / "pg", pwd.getpwnam("postgres")
    for path in (folder, mount / "data"):
        path.mkdir(mode=0o700)
        shutil.chown(path, "postgres", "postgres")
    as_postgres(place, f"{programs()}/initdb", "-D", mount / "data", "--data-checksums", "--auth=trust", "--encoding=UTF8", "--locale=C")
    place.start("web-db.postgres", f"{programs()}/postgres", "-D", mount / "data", "-c", "shared_buffers=32MB", "-c", "listen_addresses=",
                "-c", f"unix_socket_directories={folder}", "-c", "checkpoint_timeout=5min", "-c", "jit=off",
                user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/")

    def answers():
        try:
            as_postgres(place, "psql", "-c", "SELECT 1")
            return True
        except RuntimeError:
            return False
    until("PostgreSQL", answers)
    for statement in SCHEMA.strip().split(";\n"):
        as_postgres(place, "psql", "-q", "-c", statement)


def load(place, _mount):
    """Pages, at their rate, until the place is left."""
    words = []
    for name, (weight, text) in SCRIPTS.items():
        script = place.work / f"{name}.sql"
        script.write_text(DRAWN + text + "\n")
        words += ["-f", f"{script}@{weight}"]
    user = pwd.getpwnam("postgres")
    place.start("web-db.pgbench", "pgbench", "-n", "-c", "4", "-R", PAGES_PER_SECOND, "-T", 86_400, *words, "postgres",
                user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", env={"PGHOST": str(place.work / "pg"), "PATH": os.environ["PATH"]})
