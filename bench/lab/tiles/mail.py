"""A mail store: Dovecot with Maildir; mail comes by LMTP, and is read, searched, moved and expunged by IMAP.

Python's own smtplib and imaplib speak to it. Mailboxes are filled as files before, as Maildir allows.
"""

import contextlib
import imaplib
import random
import smtplib
import string
from email.message import EmailMessage

from place import run, until

USERS = 40
# In each mailbox at the start; some 25 KB each on average.
MESSAGES = 300
WORDS = ["invoice", "meeting", "holiday", "report", "contract", "server", "garden", "music", "travel", "lunch"]
# Seconds between deliveries, and between what one reader does.
DELIVERY, READER = 0.4, 1.2
READERS = 5
IMAP, LMTP = 10143, 10024

CONFIGURATION = """
base_dir = {run}
state_dir = {run}
log_path = {log}
protocols = imap lmtp
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{mount}/mail/%n
first_valid_uid = 8
first_valid_gid = 8
passdb {{
  driver = static
  args = password=tile
}}
userdb {{
  driver = static
  args = uid=mail gid=mail home={mount}/mail/%n allow_all_users=yes
}}
namespace inbox {{
  inbox = yes
  mailbox Trash {{
    auto = subscribe
  }}
}}
service imap-login {{
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
}}
"""


# Letters are pieces of this: drawing each anew would take longer than storing it.
TEXT = "".join(random.Random(0).choices(string.ascii_letters + " " * 12, k=1_000_000))


def message(dice):
    """A letter: most are short, a few have something attached."""
    letter = EmailMessage()
    letter["From"], letter["To"] = "someone@example.org", "user@example.org"
    letter["Subject"] = " ".join(dice.choices(WORDS, k=4))
    size = min(int(dice.lognormvariate(8.8, 1.4)), 1_500_000)
    begin = dice.randrange(len(TEXT) - 6000)
    letter.set_content(TEXT[begin:begin + min(size, 6000)] + " " + dice.choice(WORDS))
    if size > 6000:
        letter.add_attachment(dice.randbytes(size - 6000), maintype="application", subtype="octet-stream", filename="a.bin")
    return letter


def fill(mount):
    """Mailboxes with letters that have been read."""
    dice = random.Random(1)
    for user in range(USERS):
        inbox = mount / "mail" / f"user{user}"
        for part in ("cur", "new", "tmp"):
            (inbox / part).mkdir(parents=True, exist_ok=True)
        for number in range(MESSAGES):
            content = message(dice).as_bytes()
            (inbox / "cur" / f"{1700000000 + number * 600}.M{number}P1.tile,S={len(content)}:2,S").write_bytes(content)
    run("chown", "-R", "mail:mail", mount / "mail")
    run("sync", "-f", mount)


def start(place, mount):
    """Fills the mailboxes, starts Dovecot and waits until it answers."""
    fill(mount)
    folder = place.work / "dovecot"
    folder.mkdir(mode=0o755)
    configuration = place.work / "dovecot.conf"
    log = place.work / "dovecot.log"
    configuration.write_text(CONFIGURATION.format(run=folder, log=log, mount=mount, imap=IMAP, lmtp=LMTP))
    place.start("dovecot", "dovecot", "-F", "-c", configuration)

    def answers():
        with contextlib.suppress(OSError, imaplib.IMAP4.error):
            imaplib.IMAP4("127.0.0.1", IMAP).logout()
            return True
        return False
    until("Dovecot", answers)


def load(place, _mount):
    """People who write and read, until the place is left."""
    place.beside("deliveries", lambda: deliver(place))
    for reader in range(READERS):
        place.beside(f"reader {reader}", lambda reader=reader: read(place, random.Random(reader)))


def someone(dice):
    """A few have most of the mail."""
    return f"user{min(int(dice.expovariate(1 / 10)), USERS - 1)}"


def deliver(place):
    dice = random.Random(2)
    while place.pause(DELIVERY):
        with smtplib.LMTP("127.0.0.1", LMTP) as door:
            door.send_message(message(dice), "someone@example.org", [f"{someone(dice)}@example.org"])


def read(place, dice):
    while place.pause(READER):
        door = imaplib.IMAP4("127.0.0.1", IMAP)
        door.login(someone(dice), "tile")
        count = int(door.select("INBOX")[1][0])
        for _ in range(dice.randint(1, 6) if count else 0):
            count -= act(door, dice, count)
            if count == 0 or not place.pause(READER):
                break
        door.logout()


def act(door, dice, count):
    """One thing that a reader does in a mailbox of so many letters. Returns how many of them are gone after it."""
    recent = max(1, count - int(dice.expovariate(1 / 30)))
    chance = dice.random()
    if chance < 0.35:
        door.fetch(f"{max(1, recent - 19)}:{recent}", "(FLAGS RFC822.SIZE BODY.PEEK[HEADER.FIELDS (FROM SUBJECT DATE)])")
    elif chance < 0.80:
        door.fetch(str(recent), "(BODY[])")
    elif chance < 0.88:
        door.search(None, "SUBJECT", dice.choice(WORDS))
    elif chance < 0.90:
        door.search(None, "SINCE", "01-Nov-2023", "BODY", dice.choice(WORDS))
    elif chance < 0.96:
        door.store(str(recent), "+FLAGS", "(\\Answered)")
    else:
        door.copy(str(recent), "Trash")
        door.store(str(recent), "+FLAGS", "(\\Deleted)")
        # Also those that others have marked meanwhile.
        return sum(number is not None for number in door.expunge()[1])
    return 0
