"""A web server: nginx with a tree of real files, its access log beside them, and uploads. Python's http.client asks."""

import http.client
import random

from place import run, until

CONFIGURATION = """
daemon off;
user www-data;
worker_processes 1;
pid {work}/{name}.pid;
error_log {work}/{name}.error.log;
events {{ worker_connections 256; }}
http {{
  access_log {mount}/log/access.log;
  client_body_temp_path {mount}/incoming;
  proxy_temp_path {work}/{name}.tmp1; fastcgi_temp_path {work}/{name}.tmp2;
  uwsgi_temp_path {work}/{name}.tmp3; scgi_temp_path {work}/{name}.tmp4;
  sendfile on;
  keepalive_requests 1000;
  server {{
    listen 127.0.0.1:{port};
    root {mount}/www;
    location /uploads/ {{ dav_methods PUT; create_full_put_path on; client_max_body_size 8m; }}
  }}
}}
"""


class Site:
    """A site: how many pictures and pages it has, how large they are, how many pages people look at."""

    def __init__(self, name, port, files, mean_log, pages_per_second, uploads):
        self.name, self.port, self.files, self.mean_log = name, port, files, mean_log
        self.between = 1 / pages_per_second
        self.uploads = uploads

    def fill(self, mount):
        """Writes the tree."""
        dice = random.Random(3)
        for number in range(self.files):
            path = mount / "www" / self.path(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            size = min(int(dice.lognormvariate(self.mean_log, 1.2)), 8_000_000)
            path.write_bytes(dice.randbytes(size))
        for folder in ("log", "incoming", "www/uploads"):
            (mount / folder).mkdir(parents=True, exist_ok=True)
        run("chown", "-R", "www-data:www-data", mount / "www", mount / "incoming")
        run("sync", "-f", mount)

    @staticmethod
    def path(number):
        return f"{number % 37:02}/{number % 11:02}/{number}.jpg"

    def start(self, place, mount):
        """Writes the tree, starts nginx and waits until it answers."""
        self.fill(mount)
        configuration = place.work / f"{self.name}.nginx.conf"
        configuration.write_text(CONFIGURATION.format(work=place.work, name=self.name, mount=mount, port=self.port))
        place.start(f"{self.name}.nginx", "nginx", "-c", configuration)
        until("nginx", lambda: self.answers(0))

    def answers(self, number):
        try:
            return self.get(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), number)
        except OSError:
            return False

    def get(self, door, number):
        door.request("GET", f"/{self.path(number)}")
        answer = door.getresponse()
        answer.read()
        return answer.status == 200

    def load(self, place, _mount):
        """Two visitors at a time."""
        for visitor in range(2):
            place.beside(f"{self.name} visitor {visitor}", lambda visitor=visitor: self.visit(place, random.Random(visitor)))

    def visit(self, place, dice):
        while place.pause(2 * self.between):
            door = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            # A page and what is on it; what is popular is asked for often.
            for _ in range(dice.randint(2, 6)):
                if not self.get(door, int(self.files * dice.random() ** 3)):
                    raise RuntimeError(f"{self.name}: a file that is there was not served")
            if dice.random() < self.uploads:
                body = dice.randbytes(min(int(dice.lognormvariate(self.mean_log + 1, 1.0)), 4_000_000))
                door.request("PUT", f"/uploads/{dice.getrandbits(40):010x}.jpg", body)
                door.getresponse().read()
            door.close()
