//! Pages that need nothing else: one HTML document with its style in it, readable in light and dark.

/// A page of `body`, which is HTML; `title` is text.
pub(crate) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><main><h1>{title}</h1>\n\
         {body}</main></body></html>\n"
    )
}

/// Text as XML holds it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Four significant digits.
pub(crate) fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e9 {
        return format!("{value}");
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.digits$}")
}

/// Every tag is closed, in order; void ones close themselves.
#[cfg(test)]
pub(crate) fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        if tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{page}"),
            None => open.push(tag.split_whitespace().next().expect("a tag has a name")),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

const STYLE: &str = "\
:root{--paper:#fff;--ink:#1c1c1c;--faint:#d9d9d9;--soft:#666}\
@media(prefers-color-scheme:dark){:root{--paper:#161616;--ink:#e8e8e8;--faint:#3a3a3a;--soft:#9a9a9a}}\
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
main{max-width:60rem;margin:0 auto;padding:1.5rem}h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--faint);vertical-align:top}\
a{color:inherit}.wide{overflow-x:auto;font-size:.85em}.settings,figcaption,.absent{color:var(--soft)}\
.met{color:#009e73}.missed{color:#d55e00;font-weight:bold}figure{margin:1rem 0}svg{width:100%;height:auto}\
svg text{font-size:11px;fill:currentColor}.grid{stroke:var(--faint)}.axis{stroke:currentColor}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(number(0.001234567), "0.001235");
        assert_eq!(number(1234.5678), "1235");
        assert_eq!(number(1.15), "1.150");
        assert_eq!(number(200.0), "200");
    }
}
