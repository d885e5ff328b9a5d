"""Two small datagram sessions: a question is a number and a text, ``7 hello``; its answer is the
same, or for some texts what they say. Numbers tell the answers apart."""


class Session:
    def __init__(self):
        self._out = []

    def datagrams(self):
        out, self._out = self._out, []
        return out


class Answers(Session):
    """Says all back; ``raise`` raises, ``later S`` takes S seconds."""

    def __init__(self):
        super().__init__()
        self.peers = {}
        self._later = []

    def receive(self, datagram, peer, now):
        assert type(datagram) is bytes
        self.peers.setdefault(peer, []).append(datagram)
        word, _, argument = datagram.partition(b" ")[2].partition(b" ")
        if word == b"raise":
            raise ZeroDivisionError("one of those days")
        if word == b"later":
            self._later.append((now + float(argument), datagram, peer))
        else:
            self._out.append((datagram, peer))
        return [(peer, datagram)]

    def say(self, text):
        self._out += [(text, peer) for peer in self.peers]

    def advance(self, now):
        due = sorted(item for item in self._later if item[0] <= now)
        self._later = [item for item in self._later if item[0] > now]
        self._out += [(text, peer) for _, text, peer in due]
        return [("later", text) for _, text, _ in due]

    def next_deadline(self):
        return min((when for when, _, _ in self._later), default=None)


class Asks(Session):
    """Asks one question after another, each until it is answered; closed after the last one."""

    def __init__(self, server, texts, *, resend=0.05):
        super().__init__()
        self.closed = False
        self.server = server
        self.resends = 0
        self._questions = [b"%d %s" % pair for pair in enumerate(texts, 1)]
        self._resend = resend
        self._next = None

    def begin(self, now):
        self._out.append((self._questions[0], self.server))
        self._next = now + self._resend

    def receive(self, datagram, peer, now):
        if peer != self.server or self.closed:
            return []
        if datagram.split()[0] != self._questions[0].split()[0]:
            return []
        del self._questions[0]
        self.closed = not self._questions
        if not self.closed:
            self.begin(now)
        return [datagram]

    def advance(self, now):
        if not self.closed and self._next is not None and now >= self._next:
            self.resends += 1
            self.begin(now)
        return []

    def next_deadline(self):
        return None if self.closed else self._next
