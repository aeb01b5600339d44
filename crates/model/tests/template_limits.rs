//! Templates come with model files, so they may be wrong or hostile. They are refused or stopped, with a reason.

use duet_model::template::{ChatMessage, ChatTemplate, TemplateError, Turn};

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = [ChatMessage::new("user", "Hi")];
    ChatTemplate::new(source, "<s>", "</s>")?.render(&messages, None, Turn::Generate)
}

#[test]
fn template_says_what_it_raised() {
    let error = render("{% macro f() %}{{ raise_exception('No ' + messages[0].role + '!') }}{% endmacro %}{{ f() }}");
    assert!(matches!(&error, Err(TemplateError::Raised(words)) if words == "No user!"), "{error:?}");
    assert_eq!(error.expect_err("raised").to_string(), "No user!");
}

#[test]
fn template_that_is_not_jinja_is_refused() {
    for source in
        ["{% if %}", "{{ 'open", "{% nonsense %}", "{% for x in y %}", &"(".repeat(10_000), &"{{ (".repeat(400)]
    {
        match ChatTemplate::new(source, "", "") {
            Ok(_) => assert!(!source.contains('{')),
            Err(error) => assert!(matches!(error, TemplateError::Syntax(_)), "{error:?}"),
        }
    }
}

#[test]
fn template_that_fails_says_where() {
    for source in ["{{ missing.field.below }}", "{{ messages[0] | nosuch }}", "{{ nosuch() }}", "{{ 1 + {} }}"] {
        let error = render(source).expect_err(source);
        assert!(matches!(error, TemplateError::Render(_) | TemplateError::Syntax(_)), "{source}: {error:?}");
    }
}

#[test]
fn template_in_a_loop_is_stopped() {
    let forever = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
    assert!(matches!(render(forever), Err(TemplateError::Limit(_))));
    let endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    assert!(render(endless).is_err());
    let wordy = "{% set x = 'x' * 1000000 %}{% for a in range(999) %}{{ x }}{% endfor %}";
    assert!(matches!(render(wordy), Err(TemplateError::Limit(_))));
}

/// Values nested as deep as the steps allow: whatever is done with them, the process lives.
#[test]
fn template_that_nests_values_is_stopped() {
    let forty = format!("{}ns.x{}", "[".repeat(40), "]".repeat(40));
    let refused = ["{{ ns.x }}", "{{ {ns.x: 1} }}", "{{ ns.x | tojson }}", "{{ ns.x | pprint }}", "{{ debug() }}"];
    let allowed =
        ["", "{{ ns.x | string }}", "{{ ns.x ~ 1 }}", "{{ ns.x == [ns.x] }}", "{{ [ns.x, [ns.x]] | sort | length }}"];
    for tail in refused.into_iter().chain(allowed) {
        let source = format!(
            "{{% set ns = namespace(x=[]) %}}{{% for a in range(6000) %}}{{% set ns.x = {forty} %}}{{% endfor %}}{tail}"
        );
        let rendered = render(&source);
        assert_eq!(rendered.is_ok(), allowed.contains(&tail), "{tail}");
    }
}

#[test]
fn template_falls_back_to_chatml() {
    let text = ChatTemplate::chatml().render(&[ChatMessage::new("user", "Hi")], None, Turn::Generate);
    assert_eq!(text.expect("renders"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}
