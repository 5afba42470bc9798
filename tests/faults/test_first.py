import json
from .lab import differences
def test_x(lab, whole):
    a = lab()
    print(a.do("run", "plan.json", traps=[{"what":"record","file":"rec.json"}]))
    assert differences(a.load(), whole.load()) == []
    assert a.told().numbers == whole.told().numbers
    print(a.report(), whole.report())
    print(sorted(a.remains()), sorted(whole.remains()))
    calls, changes = json.loads((a.folder/"rec.json").read_text())
    print(len({c[0] for c in calls}), len(calls), sum(c[2] for c in calls), len(changes))
    for c in sorted({c[0] for c in calls}): print(c)
    print(changes)
