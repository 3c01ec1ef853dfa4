"""The index of tools: names, words that are written together, what is gone, and queries that nothing fits."""

from __future__ import annotations

import tracemalloc
from unicodedata import normalize

import pytest
from tests.search.judged_sets import read_judged_set

from toolplug import ToolDefinition
from toolplug.search import ranking
from toolplug.search.index import ToolIndex, ToolIndexes, compose, make_indexes
from toolplug.search.ranking import find_unfindable, search, telling_words

pytestmark = pytest.mark.requirement("I34-search")


def tool(name: str, description: str = "", **parameters: str) -> ToolDefinition:
    """A tool whose parameters have these descriptions."""
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    return ToolDefinition(name=name, description=description, parameters={"type": "object", "properties": properties})


TOOLS = [
    tool("mysql_server_list", "List servers"),
    tool("my_list", "Servers of mine"),
    tool("files", "Files of a project"),
    tool("search_documents", "Search the files", query="the weather of a city"),
    tool("sendMail", "Send a letter by mail"),
]


def names(query: str, most: int = 5, tools: list[ToolDefinition] = TOOLS) -> list[str]:
    """The names that a query finds."""
    return [each.name for each in search([ToolIndex(tools)], query, most).best]


def test_a_run_of_letters_counts_whole_beside_its_parts() -> None:
    assert names("MySQL servers")[0] == "mysql_server_list"


def test_a_query_that_holds_names_has_these_first_in_order() -> None:
    assert names("sendMail, then my_list and search_documents", 3) == ["sendMail", "my_list", "search_documents"]
    assert names("send_mail")[0] == "sendMail"


def test_a_name_of_one_word_counts_as_a_name_only_alone() -> None:
    assert names("files")[0] == "files"
    assert names("search files in documents")[0] == "search_documents"


LANGUAGES = [
    tool("weather_fr", "Affiche les prévisions météo d'une ville."),
    tool("weather_pl", "Pogoda w Łodzi: łódź."),
    tool("mail_ko", "이메일을 보냅니다."),
    tool("weather_hi", "किसी शहर का मौसम पूर्वानुमान दिखाएं।"),
    tool("mail_hi", "ईमेल भेजें।"),
    tool("weather_ru", "Прогноз погоды города."),
    tool("weather_ar", "عرض توقعات الطقس لمدينة معينة."),
    tool("weather_el", "Η πρόγνωση του καιρού της πόλης."),
    tool("mysql", "Run a statement."),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (normalize("NFD", "prévisions"), ["weather_fr"]),
        (normalize("NFD", "이메일"), ["mail_ko"]),
        ("meteo", ["weather_fr"]),
        ("météò", ["weather_fr"]),
        ("łódź", ["weather_pl"]),
        ("lodz", ["weather_pl"]),
        ("προγνωση", ["weather_el"]),
        ("ＭｙＳＱＬ", ["mysql"]),
        ("मेल", []),  # a part of the word for mail, whose first sign is left out
        ("ईमेल", ["mail_hi"]),
        ("शहर", ["weather_hi"]),
        ("что там с погоды", ["weather_ru"]),
        ("الطقس في المدينة", ["weather_ar"]),
        ("για της πόλης", ["weather_el"]),
    ],
)
def test_words_are_found_in_every_script_and_however_their_signs_are_written(query: str, found: list[str]) -> None:
    assert names(query, tools=LANGUAGES) == found


def test_signs_that_stand_for_many_others_do_not_make_a_long_text() -> None:
    assert len(compose("\ufdfa" * 1_000)) == 4_000
    assert compose("Ａe\u0301") == "Aé"


def test_texts_of_parameters_find_nothing() -> None:
    assert names("weather") == []


def test_where_fewer_than_half_of_the_words_are_known_nothing_fits() -> None:
    hits = search([ToolIndex(TOOLS)], "book a flight to Paris by mail", 5)
    assert (list(hits.best), list(hits.unmatched), hits.of) == ([], ["book", "flight", "paris"], 5)
    assert [each.name for each in hits.near] == ["sendMail"]
    assert names("the letter for Paris") == ["sendMail"]


def test_words_of_time_and_numbers_are_not_missed() -> None:
    assert names("send the mail tomorrow, please, 4711") == ["sendMail"]


def test_a_word_that_no_tool_has_is_found_by_its_kin() -> None:
    assert names("directional", tools=[tool("map", "Get directions"), tool("other")]) == ["map"]


def test_other_scripts_between_words_without_spaces_are_words() -> None:
    assert names("用gmail发", tools=[tool("gmail_send"), tool("other")]) == ["gmail_send"]


def test_after_a_change_the_index_is_made_of_the_earlier_one() -> None:
    tools = [tool(f"tool_{number}", "Does it") for number in range(300)]
    first = make_indexes(tools)
    changed = [*tools[:7], *tools[8:], tool("quite_new", "Came later")]
    then = make_indexes(changed, first)
    assert then.old.definitions is first.old.definitions
    assert [each.name for each in search(then.both, "quite_new", 1).best] == ["quite_new"]
    assert "tool_7" not in [each.name for each in search(then.both, "tool 7", 20).best]
    assert [each.name for each in search(first.both, "tool_7", 1).best] == ["tool_7"]
    assert search(then.both, "does", 5).of == 300
    assert make_indexes([tool("alone")], then).old.definitions is not first.old.definitions


def test_one_known_word_of_three_is_enough_unless_it_is_the_first() -> None:
    tools = [tool("book_room", "Book a room."), tool("check_stock", "Say how much is in stock.")]
    index = [ToolIndex(tools)]
    assert search(index, "book a flight to Paris", 5).best == ()
    assert [each.name for each in search(index, "blue mugs in stock", 5).best] == ["check_stock"]
    assert search(index, "zebras fly over stock markets", 5).best == ()


def test_tools_that_their_own_description_does_not_find_are_named() -> None:
    same = [tool(f"run_{number}", "Run the job.") for number in range(8)]
    own = tool("stop", "Stop the engine at once. It needs a key.")
    assert [each.name for each in find_unfindable([*same, own], 5)] == ["run_5", "run_6", "run_7"]
    assert telling_words(own) == ["stop", "engine", "once", "key"]


def test_a_word_counts_once_for_each_tool_however_often_it_is_there() -> None:
    # Each noun is in a quarter of the tools, and in each of them four times.
    nouns = ("branch", "ticket", "order", "folder")
    tools = [tool(f"{verb}_{noun}", f"{verb} the {noun}") for noun in nouns for verb in ("merge", "list", "share")]
    assert [each.name for each in search([ToolIndex(tools)], "merge the order", 1).best] == ["merge_order"]


def found(indexes: ToolIndexes, query: str, most: int = 5) -> list[str]:
    """The names that a query finds."""
    return [each.name for each in search(indexes.both, query, most).best]


@pytest.mark.requirement("I34-index")
def test_what_comes_back_is_found_in_the_index_where_it_was() -> None:
    tools = [tool(f"tool_{number}", "Does it") for number in range(300)]
    first = make_indexes(tools)
    without = make_indexes([*tools[:7], *tools[9:]], first)
    assert without.old.gone
    assert found(without, "tool_8", 1) != ["tool_8"]
    back = make_indexes(tools, without)
    assert (back.old.gone, back.new.definitions, found(back, "tool_8", 1)) == (frozenset(), [], ["tool_8"])
    replaced = make_indexes([*tools[:8], tool("tool_8", "Does more"), *tools[9:]], back)
    assert [each.description for each in search(replaced.both, "tool_8", 1).best] == ["Does more"]
    again = make_indexes(tools, replaced)
    assert [each.description for each in search(again.both, "tool_8", 1).best] == ["Does it"]


@pytest.mark.requirement("I34-index")
@pytest.mark.parametrize("change", ["reversed", "halves", "every tenth", "all"])
def test_an_index_that_is_made_of_an_earlier_one_finds_what_a_new_one_does(change: str) -> None:
    tools = [
        tool(f"{verb}_{number}", f"{verb} the page {number}")
        for number in range(80)
        for verb in ("read", "tear", "roll")
    ]
    other = tool("fold_paper", "Fold the page")
    changed = {
        "reversed": [*tools[::-1], other],
        "halves": [*tools[100:], other, *tools[:100]],
        "every tenth": [each for place, each in enumerate([*tools, other]) if place % 10],
        "all": [other],
    }[change]
    then, anew = make_indexes(changed, make_indexes(tools)), make_indexes(changed)
    for query in ("fold_paper", "read_40", "tear the page 17", "fold"):
        assert found(then, query, 1) == found(anew, query, 1)
    assert search(then.both, "page", 5).of == len(changed)


@pytest.mark.requirement("I34-index")
def test_where_the_shortest_tools_of_a_word_are_gone_others_are_found() -> None:
    tools = [
        *[tool(f"a_{number}", "Paint") for number in range(50)],
        *[tool(f"b_{n}", "Paint a wall") for n in range(50)],
    ]
    indexes = make_indexes(tools[50:], make_indexes(tools))
    assert len(found(indexes, "paint", 20)) == 20
    assert {name[0] for name in found(indexes, "paint", 20)} == {"b"}


def test_of_two_names_that_differ_in_how_they_are_written_each_is_found_by_its_own() -> None:
    tools = [tool("shareInvoice", "Shares it"), tool("share_invoice", "Shares it, too")]
    assert [names(each.name, 1, tools) for each in tools] == [["shareInvoice"], ["share_invoice"]]


@pytest.mark.judge
@pytest.mark.requirement("I34-index")
def test_ten_thousand_tools_take_less_than_three_kilobytes_each_and_are_found_as_by_comparing_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = read_judged_set("en")
    services = [
        f"{first}{second}" for first in ("alpha", "blue", "core", "data", "edge") for second in "abcdefghijklmn"
    ]
    tools = [
        tool(f"{service}_{each.name}", f"{each.description} Works on the account of {service}.")
        for service in services
        for each in judged.tools
    ][:10_000]
    tracemalloc.start()
    indexes = make_indexes(tools)
    best = [found(indexes, prompt.text) for prompt in judged.prompts]
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size / len(tools) < 3_000
    monkeypatch.setattr(ranking, "_COMPARED", len(tools))
    monkeypatch.setattr(ranking, "_SHORTEST", len(tools))
    of_all = [found(indexes, prompt.text) for prompt in judged.prompts]
    same = [len({*one} & {*other}) for one, other in zip(best, of_all, strict=True)]
    assert [each[:1] for each in best] == [each[:1] for each in of_all]
    assert sum(same) / sum(map(len, of_all)) >= 0.98


@pytest.mark.requirement("I34-index")
@pytest.mark.parametrize("words", ["letter", "merge order", "merge", "order table", "orders"])
def test_how_many_tools_have_a_word_is_counted_without_repetitions(words: str) -> None:
    # In a name and a description, twice in one description, and in forms of one word.
    tools = [
        tool("merge_order", "merge the order with another order"),
        tool("merge_table", "Merge tables, and the Merge of their orders"),
        tool("order", "orders and ORDER"),
        tool("other", "letter by letter"),
    ]
    index = ToolIndex(tools)
    for word in words.split():
        folded = word.removesuffix("s")
        have = {
            place for place, each in enumerate(index.definitions) if folded in f"{each.name} {each.description}".lower()
        }
        known = index.find_word(folded)
        assert (known.spread, known.names | known.texts) == (len(have), have)


@pytest.mark.requirement("I34-index")
def test_of_words_that_begin_alike_few_are_looked_up_however_many_there_are() -> None:
    many = [
        tool(f"tool_{number}", f"Shows a directi{'abcdefghij'[number % 10] * (number + 1)}") for number in range(300)
    ]
    index = ToolIndex([tool("direction", "Say the way"), *many])
    assert index.akin("directional") == ["direction"]
    assert len(index.akin("directi")) == 4
    assert index.akin("director") != index.akin("dirigent") == []
    alike = index._alike_words["direc"]
    assert len(alike) == 256
