"""The words of the stand-in translation data: tables, and the inflected forms made from them.

No sentence is built here; `sentences.py` does that. English words were chosen so that one English
sentence has one German translation: no verb whose past looks like its present ("read", "put"), no
noun whose plural looks like its singular ("sheep"), no word that two German words could stand for.
"""

from typing import Final, NamedTuple

NOM: Final = 0
ACC: Final = 1
DAT: Final = 2
GEN: Final = 3

MASCULINE: Final = 0
FEMININE: Final = 1
NEUTER: Final = 2
PLURAL: Final = 3

_GENDERS: Final = {"m": MASCULINE, "f": FEMININE, "n": NEUTER}


class Noun(NamedTuple):
    """German forms are indexed by case."""

    english: str
    english_plural: str
    gender: int
    singular: tuple[str, str, str, str]
    plural: tuple[str, str, str, str]


class Verb(NamedTuple):
    """`present` and `past` are indexed by agreement: first singular, third singular, plural.

    `particle` is the English word that follows a noun object's verb but a pronoun ("picks up the
    bag", "picks it up"); `preposition` never moves ("looks for the bag").
    """

    english: str
    english_present: str
    english_past: str
    english_participle: str
    english_progressive: str
    particle: str
    preposition: str
    infinitive: str
    present: tuple[str, str, str]
    past: tuple[str, str, str]
    participle: str
    takes_sein: bool
    prefix: str
    is_reflexive: bool


class Adjective(NamedTuple):
    """`stem` takes the endings; `german` stands alone ("das Auto ist teuer", "ein teures Auto")."""

    english: str
    german: str
    stem: str
    english_comparative: str
    comparative: str


class Place(NamedTuple):
    english_preposition: str
    preposition: str
    noun: Noun


def english_plural(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _english_past(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + "ed"


def _english_third_person(word: str) -> str:
    return word + "es" if word.endswith("o") else english_plural(word)


def _english_progressive(word: str) -> str:
    return (word[:-1] if word.endswith("e") and not word.endswith("ee") else word) + "ing"


def _german_dative_plural(plural: str) -> str:
    return plural if plural.endswith(("n", "s")) else plural + "n"


def _noun(line: str) -> Noun:
    english, gender, singular, genitive, plural = line.split()
    word, _, irregular = english.partition("/")
    if genitive.startswith("+"):  # weak masculines take the ending in every case but the first
        oblique = singular + genitive[1:]
        forms = (singular, oblique, oblique, oblique)
    else:
        ending = "" if genitive == "-" else genitive
        forms = (singular, singular, singular, singular + ending)
    plurals = (plural, plural, _german_dative_plural(plural), plural)
    return Noun(word, irregular or english_plural(word), _GENDERS[gender], forms, plurals)


def _english_verb(entry: str) -> tuple[str, str, str, str, str]:
    parts = entry.split("/")
    base = parts[0]
    past = parts[1] if len(parts) > 1 else _english_past(base)
    participle = parts[2] if len(parts) > 2 else past
    progressive = parts[3] if len(parts) > 3 else _english_progressive(base)
    return base, _english_third_person(base), past, participle, progressive


def _first_person(infinitive: str, third: str) -> str:
    if not third.endswith("t"):  # "ich weiß, er weiß"
        return third
    return infinitive[:-1] + ("e" if infinitive.endswith("ern") else "")


def _verb(line: str) -> Verb:
    """`english [~particle|:preposition] [sich] [prefix|]infinitive third past participle [s]`."""
    words = line.split()
    english = _english_verb(words.pop(0))
    particle = words.pop(0)[1:] if words[0].startswith("~") else ""
    preposition = words.pop(0)[1:] if words[0].startswith(":") else ""
    is_reflexive = words[0] == "sich" and bool(words.pop(0))
    prefix, _, infinitive = words[0].rpartition("|")
    third, past, participle = words[1:4]
    past_plural = past + ("n" if past.endswith("e") else "en")
    present = (_first_person(infinitive, third), third, infinitive)
    pasts = (past, past, past_plural)
    takes_sein = words[4:] == ["s"]
    return Verb(
        *english,
        particle,
        preposition,
        infinitive,
        present,
        pasts,
        participle,
        takes_sein,
        prefix,
        is_reflexive,
    )


def _adjective(line: str) -> Adjective:
    english, german, english_comparative, comparative = line.split()
    word, _, stem = german.partition("/")
    return Adjective(english, word, stem or word, english_comparative, comparative)


def _nouns(table: str) -> tuple[Noun, ...]:
    return tuple(_noun(line) for line in table.strip().splitlines())


def _verbs(table: str) -> tuple[Verb, ...]:
    return tuple(_verb(line) for line in table.strip().splitlines())


def _adjectives(table: str) -> tuple[Adjective, ...]:
    return tuple(_adjective(line) for line in table.strip().splitlines())


def _phrases(table: str) -> tuple[tuple[str, str], ...]:
    pairs = [line.split(" = ") for line in table.strip().splitlines()]
    return tuple((english, german) for english, german in pairs)


def _prepositional(table: str) -> tuple[tuple[Verb, str, int], ...]:
    rows = [line.rsplit(maxsplit=2) for line in table.strip().splitlines()]
    return tuple(
        (_verb(verb), german, ACC if case == "acc" else DAT) for verb, german, case in rows
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _places(table: str) -> tuple[Place, ...]:
    rows = [line.split(maxsplit=2) for line in table.strip().splitlines()]
    return tuple(Place(english, german, _noun(noun)) for english, german, noun in rows)


PERSONS: Final = _nouns("""
man/men m Mann es Männer
woman/women f Frau - Frauen
child/children n Kind es Kinder
boy m Junge +n Jungen
girl n Mädchen s Mädchen
teacher m Lehrer s Lehrer
student m Student +en Studenten
doctor m Arzt es Ärzte
neighbor m Nachbar +n Nachbarn
friend m Freund es Freunde
brother m Bruder s Brüder
sister f Schwester - Schwestern
mother f Mutter - Mütter
father m Vater s Väter
uncle m Onkel s Onkel
aunt f Tante - Tanten
grandmother f Großmutter - Großmütter
grandfather m Großvater s Großväter
son m Sohn es Söhne
daughter f Tochter - Töchter
baker m Bäcker s Bäcker
farmer m Bauer +n Bauern
mayor m Bürgermeister s Bürgermeister
judge m Richter s Richter
lawyer m Anwalt s Anwälte
painter m Maler s Maler
singer m Sänger s Sänger
writer m Schriftsteller s Schriftsteller
policeman/policemen m Polizist +en Polizisten
driver m Fahrer s Fahrer
waiter m Kellner s Kellner
customer m Kunde +n Kunden
guest m Gast es Gäste
engineer m Ingenieur s Ingenieure
nephew m Neffe +n Neffen
niece f Nichte - Nichten
queen f Königin - Königinnen
king m König s Könige
actress f Schauspielerin - Schauspielerinnen
tourist m Tourist +en Touristen
colleague m Kollege +n Kollegen
pilot m Pilot +en Piloten
musician m Musiker s Musiker
witness m Zeuge +n Zeugen
nurse f Krankenschwester - Krankenschwestern
gardener m Gärtner s Gärtner
""")

ANIMALS: Final = _nouns("""
dog m Hund es Hunde
cat f Katze - Katzen
horse n Pferd es Pferde
cow f Kuh - Kühe
bird m Vogel s Vögel
mouse/mice f Maus - Mäuse
bear m Bär +en Bären
lion m Löwe +n Löwen
rabbit n Kaninchen s Kaninchen
pig n Schwein s Schweine
duck f Ente - Enten
fox m Fuchs es Füchse
goat f Ziege - Ziegen
wolf/wolves m Wolf es Wölfe
""")

THINGS: Final = _nouns("""
book n Buch es Bücher
letter m Brief es Briefe
table m Tisch es Tische
chair m Stuhl s Stühle
car n Auto s Autos
bicycle n Fahrrad s Fahrräder
key m Schlüssel s Schlüssel
bag f Tasche - Taschen
picture n Bild es Bilder
lamp f Lampe - Lampen
watch f Uhr - Uhren
telephone n Telefon s Telefone
computer m Computer s Computer
newspaper f Zeitung - Zeitungen
knife/knives n Messer s Messer
spoon m Löffel s Löffel
cup f Tasse - Tassen
plate m Teller s Teller
bottle f Flasche - Flaschen
coat m Mantel s Mäntel
shirt n Hemd es Hemden
hat m Hut es Hüte
shoe m Schuh s Schuhe
umbrella m Regenschirm s Regenschirme
ball m Ball es Bälle
gift n Geschenk s Geschenke
box f Kiste - Kisten
guitar f Gitarre - Gitarren
violin f Geige - Geigen
flower f Blume - Blumen
ticket f Fahrkarte - Fahrkarten
suitcase m Koffer s Koffer
machine f Maschine - Maschinen
door f Tür - Türen
window n Fenster s Fenster
ring m Ring es Ringe
camera f Kamera - Kameras
pen m Stift es Stifte
ladder f Leiter - Leitern
mirror m Spiegel s Spiegel
blanket f Decke - Decken
basket m Korb es Körbe
candle f Kerze - Kerzen
dress n Kleid es Kleider
boat n Boot es Boote
bed n Bett es Betten
""")

FOODS: Final = _nouns("""
bread n Brot es Brote
apple m Apfel s Äpfel
cake m Kuchen s Kuchen
soup f Suppe - Suppen
egg n Ei s Eier
pear f Birne - Birnen
potato/potatoes f Kartoffel - Kartoffeln
tomato/tomatoes f Tomate - Tomaten
orange f Orange - Orangen
banana f Banane - Bananen
salad m Salat s Salate
sausage f Wurst - Würste
carrot f Karotte - Karotten
""")

DRINKS: Final = _nouns("""
coffee m Kaffee s Kaffees
tea m Tee s Tees
milk f Milch - Milche
water n Wasser s Wasser
beer n Bier s Biere
wine m Wein s Weine
juice m Saft es Säfte
""")

PLACES: Final = _places("""
in in garden m Garten s Gärten
in in kitchen f Küche - Küchen
in in school f Schule - Schulen
in in city f Stadt - Städte
in in park m Park s Parks
in in hotel n Hotel s Hotels
in in restaurant n Restaurant s Restaurants
in in office n Büro s Büros
in in museum n Museum s Museen
in in church f Kirche - Kirchen
in in library f Bibliothek - Bibliotheken
in in forest m Wald es Wälder
in in village n Dorf es Dörfer
in in hospital n Krankenhaus es Krankenhäuser
in in shop m Laden s Läden
in in castle n Schloss es Schlösser
in in theater n Theater s Theater
in in factory f Fabrik - Fabriken
in in house n Haus es Häuser
in in room n Zimmer s Zimmer
in in cellar m Keller s Keller
on auf street f Straße - Straßen
on auf bridge f Brücke - Brücken
on auf island f Insel - Inseln
on auf roof n Dach es Dächer
on auf mountain m Berg es Berge
""")

INTRANSITIVE: Final = _verbs("""
sleep/slept schlafen schläft schlief geschlafen
laugh lachen lacht lachte gelacht
work arbeiten arbeitet arbeitete gearbeitet
dance tanzen tanzt tanzte getanzt
sing/sang/sung singen singt sang gesungen
wait warten wartet wartete gewartet
cry weinen weint weinte geweint
cook kochen kocht kochte gekocht
get/got/gotten/getting ~up auf|stehen steht stand aufgestanden s
fall/fell/fallen ~asleep ein|schlafen schläft schlief eingeschlafen s
arrive an|kommen kommt kam angekommen s
wake/woke/woken ~up auf|wachen wacht wachte aufgewacht s
give/gave/given ~up auf|geben gibt gab aufgegeben
come/came/come ~back zurück|kommen kommt kam zurückgekommen s
listen zu|hören hört hörte zugehört
hurry sich beeilen beeilt beeilte beeilt
rest sich aus|ruhen ruht ruhte ausgeruht
apologize sich entschuldigen entschuldigt entschuldigte entschuldigt
""")

TAKES_PERSON: Final = _verbs("""
see/saw/seen sehen sieht sah gesehen
love lieben liebt liebte geliebt
visit besuchen besucht besuchte besucht
meet/met treffen trifft traf getroffen
ask fragen fragt fragte gefragt
greet begrüßen begrüßt begrüßte begrüßt
hear/heard hören hört hörte gehört
look :for suchen sucht suchte gesucht
find/found finden findet fand gefunden
forget/forgot/forgotten/forgetting vergessen vergisst vergaß vergessen
invite ein|laden lädt lud eingeladen
call an|rufen ruft rief angerufen
pick ~up ab|holen holt holte abgeholt
hug/hugged/hugged/hugging umarmen umarmt umarmte umarmt
admire bewundern bewundert bewunderte bewundert
look :at an|sehen sieht sah angesehen
take/took/taken ~along mit|nehmen nimmt nahm mitgenommen
""")

TAKES_THING: Final = _verbs("""
buy/bought kaufen kauft kaufte gekauft
repair reparieren repariert reparierte repariert
clean putzen putzt putzte geputzt
carry tragen trägt trug getragen
lose/lost verlieren verliert verlor verloren
find/found finden findet fand gefunden
see/saw/seen sehen sieht sah gesehen
look :for suchen sucht suchte gesucht
steal/stole/stolen stehlen stiehlt stahl gestohlen
need brauchen braucht brauchte gebraucht
use benutzen benutzt benutzte benutzt
hide/hid/hidden verstecken versteckt versteckte versteckt
draw/drew/drawn zeichnen zeichnet zeichnete gezeichnet
order bestellen bestellt bestellte bestellt
pay/paid :for bezahlen bezahlt bezahlte bezahlt
wash waschen wäscht wusch gewaschen
keep/kept behalten behält behielt behalten
photograph fotografieren fotografiert fotografierte fotografiert
open auf|machen macht machte aufgemacht
close zu|machen macht machte zugemacht
throw/threw/thrown ~away weg|werfen wirft warf weggeworfen
try/tried ~out aus|probieren probiert probierte ausprobiert
bring/brought ~along mit|bringen bringt brachte mitgebracht
send/sent ~back zurück|schicken schickt schickte zurückgeschickt
turn ~off aus|schalten schaltet schaltete ausgeschaltet
""")

TAKES_FOOD: Final = _verbs("""
eat/ate/eaten essen isst aß gegessen
bring/brought ~along mit|bringen bringt brachte mitgebracht
prepare vor|bereiten bereitet bereitete vorbereitet
buy/bought kaufen kauft kaufte gekauft
order bestellen bestellt bestellte bestellt
""")

TAKES_DRINK: Final = _verbs("""
drink/drank/drunk trinken trinkt trank getrunken
order bestellen bestellt bestellte bestellt
buy/bought kaufen kauft kaufte gekauft
""")

TAKES_DATIVE: Final = _verbs("""
help helfen hilft half geholfen
thank danken dankt dankte gedankt
trust vertrauen vertraut vertraute vertraut
follow folgen folgt folgte gefolgt s
congratulate gratulieren gratuliert gratulierte gratuliert
answer antworten antwortet antwortete geantwortet
forgive/forgave/forgiven verzeihen verzeiht verzieh verziehen
listen :to zu|hören hört hörte zugehört
agree :with zu|stimmen stimmt stimmte zugestimmt
""")

TAKES_TWO: Final = _verbs("""
give/gave/given geben gibt gab gegeben
show/showed/shown zeigen zeigt zeigte gezeigt
send/sent schicken schickt schickte geschickt
bring/brought bringen bringt brachte gebracht
lend/lent leihen leiht lieh geliehen
sell/sold verkaufen verkauft verkaufte verkauft
promise versprechen verspricht versprach versprochen
offer an|bieten bietet bot angeboten
""")

# The German preposition and the case that it asks for stand at the end of the line.
TAKES_PREPOSITION: Final = _prepositional("""
wait :for warten wartet wartete gewartet auf acc
think/thought :of denken denkt dachte gedacht an acc
talk :about sprechen spricht sprach gesprochen über acc
laugh :about lachen lacht lachte gelacht über acc
play :with spielen spielt spielte gespielt mit dat
dream :of träumen träumt träumte geträumt von dat
talk :to sprechen spricht sprach gesprochen mit dat
work :with arbeiten arbeitet arbeitete gearbeitet mit dat
""")

_ANIMAL_CAN: Final = frozenset(_listed("sleep wait fall wake come rest see find look hear love"))
ANIMAL_INTRANSITIVE: Final = tuple(verb for verb in INTRANSITIVE if verb.english in _ANIMAL_CAN)
ANIMAL_TAKES_PERSON: Final = tuple(verb for verb in TAKES_PERSON if verb.english in _ANIMAL_CAN)

TAKES_CLAUSE: Final = _verbs("""
say/said sagen sagt sagte gesagt
think/thought denken denkt dachte gedacht
know/knew/known wissen weiß wusste gewusst
believe glauben glaubt glaubte geglaubt
hope hoffen hofft hoffte gehofft
write/wrote/written schreiben schreibt schrieb geschrieben
""")

TAKES_INFINITIVE: Final = _verbs("""
try versuchen versucht versuchte versucht
hope hoffen hofft hoffte gehofft
promise versprechen verspricht versprach versprochen
forget/forgot/forgotten/forgetting vergessen vergisst vergaß vergessen
decide beschließen beschließt beschloss beschlossen
""")

# Nobody "is needing" a thing.
NEVER_PROGRESSIVE: Final = frozenset(
    _listed("love need see hear trust agree forget find keep admire lose promise forgive")
)

MOTION: Final = _verbs("""
go/went/gone gehen geht ging gegangen s
drive/drove/driven fahren fährt fuhr gefahren s
run/ran/run/running rennen rennt rannte gerannt s
travel reisen reist reiste gereist s
fly/flew/flown fliegen fliegt flog geflogen s
""")

PERSON_ADJECTIVES: Final = _adjectives("""
old alt older älter
young jung younger jünger
small klein smaller kleiner
big groß bigger größer
tired müde/müd more_tired müder
happy glücklich happier glücklicher
sad traurig sadder trauriger
friendly freundlich friendlier freundlicher
rich reich richer reicher
poor arm poorer ärmer
strong stark stronger stärker
famous berühmt more_famous berühmter
clever klug cleverer klüger
quiet ruhig quieter ruhiger
lazy faul lazier fauler
brave mutig braver mutiger
sick krank sicker kränker
hungry hungrig hungrier hungriger
polite höflich politer höflicher
honest ehrlich more_honest ehrlicher
curious neugierig more_curious neugieriger
proud stolz prouder stolzer
nervous nervös more_nervous nervöser
""")

THING_ADJECTIVES: Final = _adjectives("""
new neu newer neuer
old alt older älter
big groß bigger größer
small klein smaller kleiner
red rot redder roter
green grün greener grüner
blue blau bluer blauer
yellow gelb yellower gelber
black schwarz blacker schwärzer
white weiß whiter weißer
heavy schwer heavier schwerer
beautiful schön more_beautiful schöner
ugly hässlich uglier hässlicher
cheap billig cheaper billiger
expensive teuer/teur more_expensive teurer
modern modern more_modern moderner
dirty schmutzig dirtier schmutziger
long lang longer länger
short kurz shorter kürzer
round rund rounder runder
warm warm warmer wärmer
cold kalt colder kälter
dark dunkel/dunkl darker dunkler
""")

FOOD_ADJECTIVES: Final = _adjectives("""
fresh frisch fresher frischer
big groß bigger größer
small klein smaller kleiner
warm warm warmer wärmer
cold kalt colder kälter
sweet süß sweeter süßer
good gut better besser
cheap billig cheaper billiger
""")

NAMES: Final = (
    "Anna",
    "Peter",
    "Maria",
    "Paul",
    "Laura",
    "Martin",
    "Julia",
    "David",
    "Sarah",
    "Daniel",
    "Clara",
    "Robert",
    "Emma",
    "Simon",
    "Nina",
    "Oliver",
    "Eva",
    "Felix",
    "Lena",
    "Jakob",
)

CITIES: Final = _phrases("""
Berlin = Berlin
Hamburg = Hamburg
Munich = München
Cologne = Köln
Vienna = Wien
Zurich = Zürich
Paris = Paris
London = London
Rome = Rom
Prague = Prag
Warsaw = Warschau
Nuremberg = Nürnberg
Dresden = Dresden
Madrid = Madrid
""")

PRESENT_TIMES: Final = _phrases("""
today = heute
now = jetzt
every day = jeden Tag
every morning = jeden Morgen
every week = jede Woche
every year = jedes Jahr
this week = diese Woche
at the moment = im Moment
""")

PAST_TIMES: Final = _phrases("""
yesterday = gestern
last week = letzte Woche
last month = letzten Monat
last year = letztes Jahr
this morning = heute Morgen
in the summer = im Sommer
in the winter = im Winter
a year ago = vor einem Jahr
""")

FUTURE_TIMES: Final = _phrases("""
tomorrow = morgen
next week = nächste Woche
next month = nächsten Monat
next year = nächstes Jahr
soon = bald
tonight = heute Abend
the day after tomorrow = übermorgen
""")

WEEKDAYS: Final = _phrases("""
Monday = Montag
Tuesday = Dienstag
Wednesday = Mittwoch
Thursday = Donnerstag
Friday = Freitag
Saturday = Samstag
Sunday = Sonntag
""")

MONTHS: Final = _phrases("""
January = Januar
March = März
April = April
May = Mai
June = Juni
July = Juli
August = August
October = Oktober
December = Dezember
""")

FREQUENCIES: Final = _phrases("""
often = oft
always = immer
never = nie
sometimes = manchmal
usually = meistens
rarely = selten
""")

_ENGLISH_ONES: Final = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve"
)
_GERMAN_ONES: Final = _listed("null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf")
_ENGLISH_TEENS: Final = _listed("thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
_GERMAN_TEENS: Final = _listed("dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn")
_ENGLISH_TENS: Final = _listed("twenty thirty forty fifty sixty seventy eighty ninety")
_GERMAN_TENS: Final = _listed("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")


def number_words(number: int) -> tuple[str, str]:
    """2 to 99 in words; German says the ones before the tens ("fünfundzwanzig")."""
    if number <= 12:
        return _ENGLISH_ONES[number], _GERMAN_ONES[number]
    if number < 20:
        return _ENGLISH_TEENS[number - 13], _GERMAN_TEENS[number - 13]
    tens, ones = divmod(number, 10)
    english, german = _ENGLISH_TENS[tens - 2], _GERMAN_TENS[tens - 2]
    if ones == 0:
        return english, german
    return f"{english}-{_ENGLISH_ONES[ones]}", f"{_GERMAN_ONES[ones]}und{german}"


NUMBERS: Final = tuple(number_words(number) for number in range(2, 100))
