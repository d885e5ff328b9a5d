"""Two small datagram sessions of their own, so that UDP is tested without any real protocol.

A question is a number and a text, ``7 hello``; its answer is the same, or for some texts what
they say. Numbers and not their own names tell the answers apart, since both may come twice.
"""


class Answers:
    """A server's session: says everything back to whom it came from, and remembers who spoke.

    ``raise`` raises, ``later S`` answers after S seconds, ``end`` is answered and ends the session,
    ``hush`` is not answered.
    """

    def __init__(self):
        self.closed = False
        self.peers = {}
        self._later = []
        self._out = []

    def receive(self, datagram, peer, now):
        assert type(datagram) is bytes
        self.peers.setdefault(peer, []).append(datagram)
        word, _, argument = datagram.partition(b" ")[2].partition(b" ")
        if word == b"raise":
            raise ZeroDivisionError("one of those days")
        if word == b"later":
            self._later.append((now + float(argument), datagram, peer))
        elif word != b"hush":
            self._out.append((datagram, peer))
        self.closed = self.closed or word == b"end"
        return [(peer, datagram)]

    def say(self, text):
        """To everyone who ever spoke."""
        self._out += [(text, peer) for peer in self.peers]

    def advance(self, now):
        due = sorted(item for item in self._later if item[0] <= now)
        self._later = [item for item in self._later if item[0] > now]
        self._out += [(text, peer) for _, text, peer in due]
        return [("later", text) for _, text, _ in due]

    def next_deadline(self):
        return min((when for when, _, _ in self._later), default=None)

    def datagrams(self):
        out, self._out = self._out, []
        return out


class Asks:
    """A client's session: asks its questions one after another, each until it is answered.

    Events: each answer once, in order; ``("gave up", question)``. Closed after either end.
    """

    def __init__(self, server, texts, *, resend=0.05, patience=10.0):
        self.server = server
        self.closed = not texts
        self.resends = 0
        self.foreign = 0
        self._questions = [b"%d %s" % (number, text) for number, text in enumerate(texts, 1)]
        self._resend = resend
        self._patience = patience
        self._at = 0
        self._next = None
        self._until = None
        self._out = []

    def begin(self, now):
        if not self.closed:
            self._out.append((self._questions[self._at], self.server))
            self._next = now + self._resend
            self._until = now + self._patience

    def receive(self, datagram, peer, now):
        if peer != self.server:
            self.foreign += 1
            return []
        if self.closed or datagram.split()[0] != self._questions[self._at].split()[0]:
            return []
        self._at += 1
        self._next = None
        self.closed = self._at == len(self._questions)
        self.begin(now)
        return [bytes(datagram)]

    def advance(self, now):
        if self._next is None or now < self._next or self.closed:
            return []
        assert self._until is not None
        if now >= self._until:
            self.closed = True
            return [("gave up", self._questions[self._at])]
        self.resends += 1
        self._next = now + self._resend
        self._out.append((self._questions[self._at], self.server))
        return []

    def next_deadline(self):
        return None if self.closed else self._next

    def datagrams(self):
        out, self._out = self._out, []
        return out
