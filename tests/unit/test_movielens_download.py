"""The downloader against a real HTTP server on this machine, which breaks off."""

import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from latentbandits.experiments.movielens_data import Archive, fetch

FILES = ("ratings.dat", "movies.dat")


def archive_bytes():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as content:
        content.writestr("ml-1m/ratings.dat", "1::1::5::0\n" * 20_000)
        content.writestr("ml-1m/movies.dat", "1::A Film (1999)::Drama\n")
        content.writestr("ml-1m/README", "terms\n")
        content.writestr("ml-1m/users.dat", "not needed\n")
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    """Serves `body`; breaks off after `break_after` bytes of a response, if that is set."""

    body = archive_bytes()
    break_after = None
    gone = False
    daemon_threads = False

    def handle_error(self, request, client_address):
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requested.append(self.path)
        if server.gone:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body[: server.break_after])

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def server():
    server = Server(("127.0.0.1", 0), Handler)
    server.requested = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def archive(server, **changed):
    digests = {
        "md5": hashlib.md5(Server.body, usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(Server.body).hexdigest(),
    }
    url = f"http://127.0.0.1:{server.server_port}/ml-1m.zip"
    return Archive(url, "ml-1m", terms="the terms\n", **(digests | changed))


def test_downloads_once_and_then_uses_the_cache(server, tmp_path, capsys):
    seen = []

    class Progress:
        def start(self, description, total):
            seen.append((description, total))

        def advance(self, steps):
            seen.append(steps)

    folder = fetch(archive(server), tmp_path / "cache", FILES, Progress())
    assert (folder / "movies.dat").read_text() == "1::A Film (1999)::Drama\n"
    assert sorted(path.name for path in folder.iterdir()) == ["README", "movies.dat", "ratings.dat"]
    assert seen[0] == ("downloading ml-1m.zip", len(Server.body))
    assert sum(seen[1:]) == len(Server.body)
    assert capsys.readouterr().err == "the terms\n"
    assert fetch(archive(server), tmp_path / "cache", FILES) == folder
    assert len(server.requested) == 1
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["ml-1m"]


def test_a_download_that_breaks_off_is_begun_again(server, tmp_path):
    server.break_after = 100_000
    with pytest.raises(ConnectionError, match=r"broke off after 100,000 of .* run the command ag"):
        fetch(archive(server), tmp_path, FILES)
    assert not (tmp_path / "ml-1m").exists()
    server.break_after = None
    folder = fetch(archive(server), tmp_path, FILES)
    assert len(server.requested) == 2
    assert len((folder / "ratings.dat").read_text()) == 20_000 * 11


def test_a_file_that_is_not_the_published_one_is_refused_and_removed(server, tmp_path):
    server.body = b"x" * 5000
    with pytest.raises(ValueError, match=r"is not the published ml-1m\.zip: its MD5 is"):
        fetch(archive(server), tmp_path, FILES)
    assert list(tmp_path.iterdir()) == []
    server.body = Server.body
    assert (fetch(archive(server), tmp_path, FILES) / "ratings.dat").is_file()
    other = archive(server, sha256="0" * 64)
    with pytest.raises(ValueError, match="truncated or altered"):
        fetch(other, tmp_path / "elsewhere", FILES)


def test_an_archive_put_into_the_cache_by_hand_is_used(server, tmp_path):
    (tmp_path / "ml-1m.zip").write_bytes(Server.body)
    assert (fetch(archive(server), tmp_path, FILES) / "ratings.dat").is_file()
    assert server.requested == []


def test_a_truncated_archive_put_there_by_hand_is_refused(server, tmp_path):
    (tmp_path / "ml-1m.zip").write_bytes(Server.body[:5000])
    with pytest.raises(ValueError, match=r"\(5,000 bytes\) is not the published"):
        fetch(archive(server), tmp_path, FILES)


def test_a_cached_folder_that_lacks_a_file_is_fetched_anew(server, tmp_path):
    folder = fetch(archive(server), tmp_path, FILES)
    (folder / "movies.dat").unlink()
    assert fetch(archive(server), tmp_path, FILES) == folder
    assert (folder / "movies.dat").is_file()


def test_without_network_there_are_two_ways_out(server, tmp_path):
    nowhere = Archive("http://127.0.0.1:9/ml-1m.zip", "ml-1m", "", "", terms="")
    with pytest.raises(ConnectionError) as caught:
        fetch(nowhere, tmp_path, FILES)
    message = str(caught.value)
    assert "cannot download http://127.0.0.1:9/ml-1m.zip (" in message
    assert "1. where you have the data: pass --data DIR, or set LATENTBANDITS_DATA=DIR" in message
    assert f"copy it to {tmp_path / 'ml-1m.zip'}, and run this again" in message


def test_a_page_that_is_gone_has_the_same_two_ways_out(server, tmp_path):
    server.gone = True
    with pytest.raises(ConnectionError, match=r"HTTP Error 404: Not Found\)\. Two ways out"):
        fetch(archive(server), tmp_path, FILES)
