//! What llama.cpp's notation becomes, and what is refused.

use super::*;

fn check(gbnf: &str, lark: &str) {
    assert_eq!(to_lark(gbnf).unwrap(), lark, "{gbnf}");
}

fn refused(gbnf: &str, reason: &str) {
    let error = to_lark(gbnf).unwrap_err().to_string();
    assert!(error.contains(reason), "{gbnf}: {error}");
}

#[test]
fn rules_are_translated() {
    check(
        "# moves\nroot ::= \"1.\" move \" \"? # one\n  \nmove ::= (\n  [a-h] [^1-8\\]] |\n  \"O-O\"\n){1,2} |\n \"\" | .{3}\n",
        "start: r0\nr0: (/1/ /\\x{2e}/) r1 /\\x{20}/?\nr1: (/[a-h]/ /[^1-8\\x{5d}]/ | (/O/ /\\x{2d}/ /O/)){1,2} | \"\" | /(?s:.)/{3,3}\n",
    );
    check("root ::= \"\\x41\\u00e9\\n\"* | root [-+]", "start: r0\nr0: (/A/ /é/ /\\x{a}/)* | r0 /[\\x{2d}\\x{2b}]/\n");
}

#[test]
fn mistakes_are_told_with_their_line() {
    refused("", "'root' is not defined");
    refused("a ::= \"x\"", "'root' is not defined");
    refused("root ::= a", "'a' is not defined");
    refused("root ::= \"a\"\nroot ::= \"b\"", "defined twice");
    refused("root ::= (\"a\"\n", "line 2: ')' is missing");
    refused("root ::= \"a", "ends inside");
    refused("root ::= [b-a]", "range");
    refused("root ::= \"a\"{3,1}", "bounds");
    refused("root ::= \"a\"{1,100000}", "bounds");
    refused("root ::= %", "begins nothing");
    refused(&format!("root ::= {}", "(".repeat(10_000)), "too deep");
}
