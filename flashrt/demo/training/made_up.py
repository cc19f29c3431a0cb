"""Tools that nobody has: put together from verbs, things and parameters of every JSON type.

What is asked, the tool's name, its description and its parameters share words or their synonyms, so
that reading the tools is the way to the right call.
"""

import json
from collections.abc import Callable
from typing import Any

import attrs

from flashrt.demo.training.corpus import corpus
from flashrt.demo.training.dialogue import Json, Task, function
from flashrt.demo.training.kinds import described
from flashrt.demo.training.words import Words

VERBS = (
    """create,make,add,set up|delete,remove,drop,erase|update,change,modify,adjust|get,fetch,look up,show
send,deliver,post|book,reserve|cancel,call off|start,begin,launch|stop,halt,end|play,put on
schedule,plan|order,buy|find,search for,look for|check,inspect,verify|open,unlock|close,shut,lock
count,tally|rename,relabel|move,shift,transfer|copy,duplicate|print,print out|convert,turn
measure,gauge|assign,hand|approve,accept|reject,decline,refuse|archive,file away|share,pass on
pay,settle|invite,ask in|mark,flag,label|track,follow|draw,sketch|translate,render|summarize,sum up
record,log,note down|paint,colour|water,sprinkle|feed,nourish|clean,tidy|repair,fix|pack,wrap
list,show all|rate,score|compare,match|resize,scale|rotate,turn round|mute,silence|dim,lower
install,put in|restart,reboot|deploy,roll out|upload,put up|validate,test|sort,arrange|reply to,answer
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
THINGS = (
    """meeting,appointment|invoice,bill|ticket,issue|order,purchase|user,account|customer,client
room,chamber|table,desk|flight,plane trip|hotel,inn|song,track|playlist,mix|light,lamp|door,gate
alarm,wake-up call|reminder,memo|note,jotting|task,to-do|event,happening|message,text|email,mail
photo,picture|video,clip|document,paper|contract,agreement|payment,transfer|product,item|parcel,package
car,vehicle|bike,bicycle|train,rail trip|recipe,dish|plant,flower|garden,yard
robot,machine|server,host|database,data store|branch,line|container,box|job,run|report,summary
chart,graph|survey,poll|course,class|lesson,unit|student,pupil|patient,visitor|dose,pill
poem,verse|game,match|team,squad|player,member|score,result|coupon,voucher
sensor,probe|camera,webcam|channel,feed|thread,conversation|label,tag|folder,directory|backup,copy
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@attrs.frozen
class Slot:
    """A parameter: its names, type, descriptions, how a value is drawn and how it is said."""

    names: str
    type: str
    descriptions: str
    draw: Callable[[Words], Any]
    said: str
    items: str = ""


def _int(low: int, high: int) -> Callable[[Words], int]:
    return lambda w: w.r.randint(low, high)


def _pick(options: str) -> Callable[[Words], str]:
    return lambda w: w.r.choice(options.split())


def _some(draw: Callable[[Words], Any]) -> Callable[[Words], list[Any]]:
    return lambda w: [draw(w) for _ in range(w.r.randint(2, 3))]


SLOTS = [
    Slot("name|title|label", "string", "The name|Its title", lambda w: w.words(1, 2), "called {}|named {}|with the name {}|with the title {}"),
    Slot("recipient|to|receiver|target_user", "string", "Who gets it|The recipient", Words.person, "to {}|for {}"),
    Slot("owner|assignee|person|author", "string", "The person in charge|Whose it is", Words.person, "owned by {}|of {}|belonging to {}"),
    Slot("city|location|place|destination", "string", "The place|City name", Words.city, "in {}|at {}"),
    Slot("origin|from_city|source_place", "string", "Where it starts", Words.city, "from {}|starting in {}"),
    Slot("email|mail_address", "string", "E-mail address", Words.email, "with the address {}|at {}"),
    Slot("date|day|on_date", "string", "The day, YYYY-MM-DD", Words.date, "on {}|for {}|dated {}"),
    Slot("time|at|start_time", "string", "Time of the day, HH:MM", Words.clock, "at {}|starting at {}"),
    Slot("id|identifier|reference|code|number_id", "string", "The identifier|Reference code", Words.code, "{}|with the id {}|with the code {}|number {}"),
    Slot("count|quantity|amount|how_many", "integer", "How many", _int(1, 500), "{} times|with quantity {}|in a quantity of {}|count {}"),
    Slot("minutes|duration|duration_minutes", "integer", "Duration in minutes", _int(1, 240), "for {} minutes|lasting {} minutes"),
    Slot("price|cost|max_price", "number", "The price", lambda w: w.r.randint(1, 99999) / 100, "for {} euros|at a price of {}|costing {}"),
    Slot("percent|level|brightness", "integer", "In per cent, 0 to 100", _int(0, 100), "at {} percent|to {} %|to level {}"),
    Slot("temperature|degrees", "number", "Degrees", lambda w: w.r.choice([w.r.randint(-10, 60), w.r.randint(-1000, 6000) / 100]), "at {} degrees|to {} degrees"),
    Slot("priority|urgency|importance", "string", "How urgent it is", _pick("low normal high urgent"), "with {} priority|with priority {}|as {} priority"),
    Slot("color|colour", "string", "The colour", _pick("red green blue yellow black white pink orange"), "in {}|in the colour {}"),
    Slot("language|lang", "string", "Language", _pick("English French German Spanish Italian Dutch Polish Welsh"), "in {}|into {}"),
    Slot("text|message|body|comment", "string", "The text|What it says", Words.sentence, "saying \"{}\"|with the text \"{}\"|that says '{}'"),
    Slot("reason|why", "string", "The reason", lambda w: w.words(2, 4), "because of \"{}\"|with the reason \"{}\""),
    Slot("path|file|file_path", "string", "Path of a file", Words.path, "from the file {}|using {}|with the file {}"),
    Slot("url|link", "string", "A link", Words.url, "from {}|at {}|with the link {}"),
    Slot("version|release", "string", "The version", Words.version, "version {}|at version {}|with version {}"),
    Slot("urgent|express|fast", "boolean", "Whether it is urgent", lambda w: w.r.random() < 0.5, "with express {bool}|with the express option {bool}"),
    Slot("notify|send_notification", "boolean", "Whether to tell people", lambda w: w.r.random() < 0.5, "with notifications {bool}|and set notifications {bool}"),
    Slot("dry_run|simulate", "boolean", "Only pretend", lambda w: w.r.random() < 0.5, "with dry run {bool}|with simulation {bool}"),
    Slot("tags|labels|keywords", "array", "Tags", _some(lambda w: w.made()), "tagged {list}|with the tags {list}", "string"),
    Slot("people|members|attendees|guests", "array", "Names of the people", _some(Words.person), "with {list}|for {list}", "string"),
    Slot("numbers|values|ids", "array", "Numbers", _some(_int(0, 999)), "with the numbers {list}|for the values {list}", "integer"),
    Slot("size|dimensions", "object", "Width and height", lambda w: {'width': w.r.randint(1, 999), 'height': w.r.randint(1, 999)}, "with width {width} and height {height}|of width {width} and height {height}"),
    Slot("position|coordinates", "object", "x and y", lambda w: {'x': w.r.randint(-99, 99), 'y': w.r.randint(-99, 99)}, "at x {x} and y {y}|at position x {x}, y {y}"),
]  # fmt: skip
MANNERS = ["{verb} {thing} {said}"] * 6 + [
    "{said}, {verb} {thing}", "{said}: {verb} {thing}", "{verb} this for me: {thing} {said}",
    "{thing} {said}, {verb} it", "about {thing} {said}: {verb} it", "{thing}: {verb} it {said}",
]  # fmt: skip
FIELDS = "status id total price owner state count position reference level result code".split()


class MadeUp:
    """Draws tasks for made-up tools."""

    def __init__(self, w: Words) -> None:
        self.w, self.r = w, w.r

    def task(self) -> Task:
        """With a new tool."""
        r = self.r
        (verbs, does), (things, is_) = self._words("verbs", VERBS), self._words("nouns", THINGS)
        slots = self._slots()
        odd = r.random() < 0.2
        called: list[str] = []
        for slot in slots:
            name = self.w.strange() if odd and slot.type != "boolean" else slot.names
            name = r.choice(name.split("|"))
            called.append(name if name not in called else f"{name}_2")
        values = [s.draw(self.w) for s in slots]
        given = [i == 0 or r.random() < 0.85 for i in range(len(slots))]
        tool = self._tool(verbs, things, slots, called, given)
        if does and r.random() < 0.5:
            tool["function"]["description"] = f"{does.capitalize()}: {r.choice(things)}"
        if is_ and r.random() < 0.5:
            tool["function"]["description"] += f" ({things[0]}: {is_})"
        phrases = [self._said(s, v) for s, v, g in zip(slots, values, given, strict=True) if g]
        arguments = {n: v for n, v, g in zip(called, values, given, strict=True) if g}
        result, answer = self._result(verbs[0], things[0])
        thing = r.choice(things)
        article = r.choice(["the ", "a ", "the ", "", "my "])
        verb, said = r.choice(verbs), " ".join(phrases)
        ask = r.choice(MANNERS).format(verb=verb, thing=f"{article}{thing}", said=said)
        if r.random() < 0.08:
            pairs = r.choice([", ", " and "]).join(
                f"{n} {self._plain(v)}" for n, v in arguments.items()
            )
            ask = f"{r.choice(['call', 'use', 'invoke'])} {tool['function']['name']} with {pairs}"
        return Task(ask, tool, arguments, result, answer, f"{verbs[0]} {things[0]}")

    def _words(self, part: str, own: list[str]) -> tuple[list[str], str]:
        """Words that mean the same, and what they mean where WordNet tells it."""
        p = self.r.random()
        if p < 0.07:
            return [self.w.word().lower()], ""
        return (self.r.choice(own).split(","), "") if p < 0.5 else self.r.choice(corpus()[part])

    def _slots(self) -> list[Slot]:
        chosen: list[Slot] = []
        for slot in self.r.sample(SLOTS, self.r.choice([1, 1, 2, 2, 2, 3, 3, 4])):
            names = {n for s in chosen for n in s.names.split("|")}
            if not names & set(slot.names.split("|")):
                chosen.append(slot)
        return chosen

    def _tool(
        self,
        verbs: list[str],
        things: list[str],
        slots: list[Slot],
        called: list[str],
        given: list[bool],
    ) -> Json:
        r = self.r
        verb, thing = r.choice(verbs).replace("-", " "), r.choice(things).replace("-", " ")
        words = f"{verb} {thing}".split()
        if r.random() < 0.2:
            words = f"{thing} {verb}".split()
        forms = [
            "_".join(words),
            "_".join(words),
            "-".join(words),
            words[0] + "".join(w.capitalize() for w in words[1:]),
            "".join(w.capitalize() for w in words),
        ]
        name = r.choice(forms) if r.random() < 0.85 else self.w.strange()
        if r.random() < 0.15:
            name = f"mcp__{self.w.made()}__{name}"
        properties = {}
        for slot, key in zip(slots, called, strict=True):
            schema: Json = {"type": slot.type}
            if slot.items:
                schema["items"] = {"type": slot.items}
            if slot.type == "object" and r.random() < 0.5:
                schema["properties"] = {k: {"type": "integer"} for k in slot.draw(self.w)}
            if r.random() < 0.9 or key not in slot.names.split("|"):
                schema["description"] = r.choice(slot.descriptions.split("|"))
            properties[key] = schema
        shown = f"{r.choice(verbs).capitalize()} a {r.choice(things)}"
        if r.random() < 0.3:
            shown += r.choice([". ", "; ", " - "]) + self.w.words(4, 10)
        required = [k for k, g in zip(called, given, strict=True) if g and r.random() < 0.9]
        return function(name, described(self.w, shown), properties, required)

    def _said(self, slot: Slot, value: Any) -> str:
        form = self.r.choice(slot.said.split("|"))
        if isinstance(value, bool):
            return form.replace(
                "{bool}",
                self.r.choice(
                    ["on", "enabled", "turned on"] if value else ["off", "disabled", "turned off"]
                ),
            )
        if isinstance(value, list):
            words = [str(v) for v in value]
            joined = f"{', '.join(words[:-1])}{self.r.choice([' and ', ', '])}{words[-1]}"
            return form.replace("{list}", joined)
        return form.format(**value) if isinstance(value, dict) else form.format(value)

    @staticmethod
    def _plain(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    def _result(self, verb: str, thing: str) -> tuple[str, str]:
        r, w = self.r, self.w
        p = r.random()
        if p < 0.12:
            why = r.choice(
                [
                    "not found",
                    "already exists",
                    "no such " + thing,
                    "quota exceeded",
                    "access denied",
                    w.words(2, 4),
                ]
            )
            return r.choice(
                [f"Error: {why}", json.dumps({"error": why}), f"failed: {why}"]
            ), f"That did not work: {why}."
        draws = [w.code, w.number, w.word, w.date, w.version, w.clock]
        if p < 0.55:
            fields: Json = {f: r.choice(draws)() for f in r.sample(FIELDS, r.randint(1, 3))}
            if r.random() < 0.3:
                fields = {f: int(v) if v.isdigit() else v for f, v in fields.items()}
            shown = (
                json.dumps(fields)
                if r.random() < 0.8
                else "\n".join(f"{f}: {v}" for f, v in fields.items())
            )
            return shown, f"Done: {', '.join(f'{f} {v}' for f, v in fields.items())}."
        text = r.choice(
            [w.sentence(), w.sentence(), f"{thing} {w.code()}", w.code(), w.words(2, 5)]
        )
        return text, f"The tool says: {text}"


# ruff: noqa: E501, SIM905 - tables of phrases
