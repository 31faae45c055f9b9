"""The tests are honest: they wait for a condition and never for a time, they run our own code and not a stand-in, and
each of them can fail."""

from __future__ import annotations

import ast

from tests.architecture.tree import Function, Module, dotted, modules

MAY_SLEEP = "tests/support/waiting.py"
SLEEPS = frozenset({"time.sleep", "asyncio.sleep", "anyio.sleep"})
STAND_INS = ("unittest.mock", "mock", "pytest_mock")
CAN_FAIL = frozenset({"pytest.raises", "pytest.warns", "pytest.fail"})
CHECKS_BY_NAME = ("assert_", "check_", "until")  # functions of tests/support that fail by themselves


def _is_turn_of_the_loop(call: ast.Call) -> bool:
    """`asyncio.sleep(0)` lets others run; it waits for no time."""
    match call.args:
        case [ast.Constant(value=0)]:
            return True
        case _:
            return False


def test_no_test_waits_for_a_time() -> None:
    found = []
    for module in modules("tests"):
        if module.shown == MAY_SLEEP:
            continue
        found += [f"{module.at(node)} imports {name}" for node, name in module.imports() if name in SLEEPS]
        found += [
            f"{module.at(node)} calls {dotted(node.func)}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and dotted(node.func) in SLEEPS and not _is_turn_of_the_loop(node)
        ]
    assert found == [], f"wait for a condition: {MAY_SLEEP}"


def test_no_test_replaces_our_own_code() -> None:
    found = []
    for module in modules("tests"):
        found += [
            f"{module.at(node)} imports {name}"
            for node, name in module.imports()
            if f"{name}.".startswith(_dotted(STAND_INS))
        ]
        found += [f"{module.at(node)} patches {what}" for node, what in _patched_by_name(module)]
    assert found == []


def _dotted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}." for name in names)


def _patched_by_name(module: Module) -> list[tuple[ast.Call, str]]:
    """Calls of `monkeypatch.setattr("runner.…", …)`."""
    return [
        (node, str(node.args[0].value))
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and dotted(node.func).endswith(".setattr")
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and str(node.args[0].value).startswith(("runner.", "jobs."))
    ]


def test_every_test_can_fail() -> None:
    found = [
        f"{module.at(function)} {function.name}"
        for module in modules("tests")
        if module.path.name.startswith("test_")
        for function in module.functions()
        if function.name.startswith("test_") and not _can_fail(function, module, frozenset())
    ]
    assert found == [], "assert something, or use pytest.raises"


def _can_fail(function: Function, module: Module, seen: frozenset[str]) -> bool:
    """Whether it asserts, itself or through a function of the same module that it calls or is handed."""
    nodes = list(ast.walk(function))
    if any(isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant) for node in nodes):
        return True
    called = {dotted(node.func) for node in nodes if isinstance(node, ast.Call)}
    if called & CAN_FAIL or any(name.split(".")[-1].startswith(CHECKS_BY_NAME) for name in called):
        return True
    named = {node.id for node in nodes if isinstance(node, ast.Name)} - seen - {function.name}
    own = [other for other in module.functions() if other.name in named]
    return any(_can_fail(other, module, seen | {function.name}) for other in own)


def test_no_module_of_tests_drops_out_as_a_whole() -> None:
    found = [
        f"{module.at(node)} {dotted(node.func)}"
        for module in modules("tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (
            dotted(node.func) == "pytest.importorskip"
            or any(keyword.arg == "allow_module_level" for keyword in node.keywords)
        )
    ]
    assert found == [], "a need is a mark (tests/conftest.py), so that it can be required"


def test_an_empty_test_is_noticed() -> None:
    text = "def test_nothing() -> None:\n    assert True\n    print('done')\n"
    tree = ast.parse(text)
    module = Module(modules("tests")[0].path, text, tree)
    assert [_can_fail(function, module, frozenset()) for function in module.functions()] == [False]
