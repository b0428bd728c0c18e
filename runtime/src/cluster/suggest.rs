//! "Did you mean ...?"

/// The candidate most like `word`, if any is like enough to be a slip of the fingers:
/// Jaro-Winkler similarity of at least 0.8, ties to the first in order.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let likeness = strsim::jaro_winkler(word, candidate);
        if likeness >= 0.8 && best.is_none_or(|(b, _)| likeness > b) {
            best = Some((likeness, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `nearest` as the end of a sentence: "; did you mean `x`?", or nothing.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    nearest(word, candidates).map_or_else(String::new, |c| format!("; did you mean `{c}`?"))
}
