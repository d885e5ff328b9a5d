"""PERLERT datagrams for the fuzz driver."""

DATAGRAMS = [
    "city:7;lobby",
    "city:7;register=agent0,patrick",
    "city:7;ready=agent0,true",
    "city:7;ready=agent0,false",
    "city:7;action=walk",
    "city:7;action=5,6.78",
    "ciudad ñ:007;register=agenté,日本",
    "city:9223372036854775807;action=",
    "city:7;agent0=open,citizen,cpu,ready",
    "city:7;agent0=close,citizen,patrick,ready;",
    "city:7;agent0=open,citizen,cpu,ready;agent1=close,,,not_ready;z=open,zombie,,ready;",
    "city:7;registered=agent0",
    "city:7;message=Simulation will start...",
    "city:7;message=a;b=c:d,e 🙂",
    "city:7;start=port:32323",
    "city:7:1590853116323:0;obs=45;reward=0;done=false",
    "city:7:1590853134833:0;obs=51;reward=1;done=true",
    "city:7:1590853116323:0;obs=x:0.54,y:0.95;reward=1.5;done=false;"
    "extra=did_jump:true,jump_length:6.84",
    "city:7:1:2;obs=;reward=;done=true;extra=",
    "city:7:1:2;obs=0.1,-2e-5,nan,inf;reward=-1.2345678901234567e-08;done=true;extra=ö",
    "city:7:1:2;obs=1;reward=a:b,c;done=false",
]


def messages():
    return [datagram.encode() for datagram in DATAGRAMS]
