//! The file: it says again what it was told, within its bounds, and refuses what is none.

use duet_history::{
    Filter, HistoryError, HistoryFile, Interaction, Limits, ModelFingerprint, TaskKey, TaskName, UserName,
};
use duet_types::{Bytes, TokenId, Tokens};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const USERS: [&str; 3] = ["", "ann", "ben"];
const TASKS: [&str; 3] = ["", "mail", "code"];

fn key(user: usize, task: usize, model: u64) -> TaskKey {
    TaskKey { user: UserName::named(USERS[user]), task: TaskName::named(TASKS[task]), model: ModelFingerprint(model) }
}

fn any_key() -> impl Strategy<Value = TaskKey> {
    (0..USERS.len(), 0..TASKS.len(), 0_u64..2).prop_map(|(user, task, model)| key(user, task, model))
}

fn interaction(key: TaskKey, prompt: usize, answer: usize, seed: u32) -> Interaction {
    let tokens =
        |count: usize| (0..count as u32).map(|i| TokenId(seed.wrapping_add(i * i) % 200_000)).collect::<Vec<_>>();
    Interaction::new(key, &tokens(prompt), &tokens(answer))
}

fn any_interaction() -> impl Strategy<Value = Interaction> {
    (any_key(), 0_usize..8, 0_usize..400, any::<u32>())
        .prop_map(|(key, prompt, answer, seed)| interaction(key, prompt, answer, seed))
}

/// What happens to a history.
#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Interaction>),
    Reopen,
    Purge(Option<usize>, Option<usize>),
}

fn any_step() -> impl Strategy<Value = Step> {
    let one_of_three = || prop::option::of(0_usize..3);
    prop_oneof![
        6 => prop::collection::vec(any_interaction(), 1..8).prop_map(Step::Append),
        2 => Just(Step::Reopen),
        1 => (one_of_three(), one_of_three()).prop_map(|(user, task)| Step::Purge(user, task)),
    ]
}

fn filter(user: Option<usize>, task: Option<usize>) -> Filter {
    Filter { user: user.map(|user| UserName::named(USERS[user])), task: task.map(|task| TaskName::named(TASKS[task])) }
}

/// All that a file says, by key.
fn contents(file: &HistoryFile) -> BTreeMap<TaskKey, Vec<Interaction>> {
    let texts = |key: TaskKey| {
        let texts = file.newest(&key, Tokens(u32::MAX)).unwrap();
        (key.clone(), texts.into_iter().map(|text| Interaction { key: key.clone(), text }).collect())
    };
    file.list(&Filter::default()).map(|task| texts(task.key)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A file is what a list of interactions would be, from which tasks that are too long lose their oldest.
    #[test]
    fn a_file_says_again_what_it_was_told(steps in prop::collection::vec(any_step(), 1..20)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let limits = Limits { task: Tokens(1500), ..Limits::default() };
        let mut file = HistoryFile::open(&path, limits).unwrap();
        let mut expected: BTreeMap<TaskKey, Vec<Interaction>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Append(interactions) => {
                    file.append(&interactions).unwrap();
                    for new in interactions {
                        let task = expected.entry(new.key.clone()).or_default();
                        task.push(new);
                        while task.iter().map(|one| one.text.tokens()).sum::<Tokens>() > limits.task {
                            task.remove(0);
                        }
                    }
                }
                Step::Reopen => {
                    drop(file);
                    file = HistoryFile::open(&path, limits).unwrap();
                }
                Step::Purge(user, task) => {
                    let filter = filter(user, task);
                    let before: usize = expected.values().map(Vec::len).sum();
                    expected.retain(|key, _| !filter.matches(key));
                    let after: usize = expected.values().map(Vec::len).sum();
                    prop_assert_eq!(file.purge(&filter).unwrap(), (before - after) as u64);
                }
            }
            prop_assert_eq!(contents(&file), expected.clone());
            for task in file.list(&Filter::default()) {
                let texts = &expected[&task.key];
                prop_assert_eq!(task.interactions, texts.len() as u64);
                prop_assert_eq!(task.tokens, texts.iter().map(|one| one.text.tokens()).sum());
            }
        }
    }
}

/// Far more than fits, one by one and many at once, short and long: the file stays within its limit, and what is left is
/// the newest.
#[test]
fn a_file_stays_within_its_limit_and_the_oldest_go_first() {
    for (megabytes, longest) in [(5, 40), (6, 1500), (7, 9000), (9, 2100)] {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { file: Bytes(megabytes << 20), task: Tokens(u32::MAX), ..Limits::default() };
        let mut file = HistoryFile::open(&folder.path().join("history"), limits).unwrap();
        let (mut appended, mut tokens) = (Vec::new(), 0);
        for batch in 0.. {
            let answer = |i: u32| interaction(key(i as usize % 3, 1, 0), 4, 1 + i as usize * 7919 % longest, i);
            let count = if batch % 3 == 0 { 1 } else { batch % 200 };
            let new: Vec<_> = (batch * 1000..batch * 1000 + count).map(answer).collect();
            file.append(&new).unwrap();
            tokens += new.iter().map(|one| u64::from(one.text.tokens().0)).sum::<u64>();
            appended.extend(new);
            assert!(file.bytes().unwrap() <= limits.file, "{megabytes} MiB, batch {batch}: {}", file.bytes().unwrap());
            if tokens > megabytes << 20 {
                break;
            }
        }
        let left: usize = contents(&file).values().map(Vec::len).sum();
        let newest = &appended[appended.len() - left..];
        let mut expected: BTreeMap<TaskKey, Vec<Interaction>> = BTreeMap::new();
        newest.iter().for_each(|new| expected.entry(new.key.clone()).or_default().push(new.clone()));
        assert_eq!(contents(&file), expected);
        assert!(left > 50 && left < appended.len(), "{left} of {}", appended.len());
    }
}

#[test]
fn one_process_at_a_time_has_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let file = HistoryFile::open(&path, Limits::default()).unwrap();
    let second = HistoryFile::open(&path, Limits::default()).unwrap_err();
    assert!(matches!(second, HistoryError::InUse(_)), "{second:?}");
    assert!(second.to_string().contains("in use by another duet"));
    drop(file);
    HistoryFile::open(&path, Limits::default()).unwrap();
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other");
    for content in [&b"My diary."[..], b"r", b"redb\x1a\x0a\xa9\x0d", &[0; 8192]] {
        fs::write(&path, content).unwrap();
        let refused = HistoryFile::open(&path, Limits::default()).unwrap_err();
        assert!(refused.is_bad_input(), "{refused:?}");
        assert!(refused.to_string().contains("other: not a history of duet"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    let database = redb::Database::create(folder.path().join("database")).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(redb::TableDefinition::<u64, u64>::new("bank")).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = HistoryFile::open(&folder.path().join("database"), Limits::default()).unwrap_err();
    assert!(matches!(refused, HistoryError::Foreign(_)), "{refused:?}");
    assert!(matches!(HistoryFile::open(folder.path(), Limits::default()), Err(HistoryError::Foreign(_))));
    let below = HistoryFile::open(&path.join("below"), Limits::default()).unwrap_err();
    assert!(matches!(below, HistoryError::Io { .. }) && !below.is_bad_input(), "{below:?}");
}

fn filled(path: &Path) -> Vec<u8> {
    let mut file = HistoryFile::open(path, Limits::default()).unwrap();
    for seed in 0..60 {
        file.append(&[interaction(key(seed as usize % 3, seed as usize % 2, 0), 9, 500, seed)]).unwrap();
    }
    drop(file);
    fs::read(path).unwrap()
}

/// Damage at any place is found when the file is opened, or does not matter; it never makes it say something else.
#[test]
fn a_damaged_file_is_refused_or_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let whole = filled(&path);
    let expected = contents(&HistoryFile::open(&path, Limits::default()).unwrap());
    let mut refused = 0;
    let mut damaged: Vec<Vec<u8>> =
        (0..whole.len()).step_by(whole.len() / 29).skip(1).map(|len| whole[..len].to_vec()).collect();
    let places = (0..512).step_by(3).chain((512..whole.len()).step_by(4096 * 3 + 137));
    damaged.extend(places.map(|place| {
        let mut bytes = whole.clone();
        let end = (place + 1 + place % 97).min(bytes.len());
        bytes[place..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        bytes
    }));
    for (case, bytes) in damaged.iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        match HistoryFile::open(&path, Limits::default()) {
            Ok(file) => assert_eq!(contents(&file), expected, "case {case}"),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("history: "), "{error}");
                assert!(error.is_bad_input(), "case {case}: {error:?}");
            }
        }
    }
    assert!(refused > 20, "{refused} of {}", damaged.len());
}

/// Cut or changed anywhere: it is read as it was, or kept under another name while a new history begins. Never a panic.
#[test]
fn a_damaged_file_is_set_aside_for_a_new_history() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let whole = filled(&path);
    let expected = contents(&HistoryFile::open(&path, Limits::default()).unwrap());
    let flip = |place: usize| {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x80;
        bytes
    };
    let cuts = (16..whole.len()).step_by(whole.len() / 23).map(|len| whole[..len].to_vec());
    let flips = (9..256).step_by(11).chain((256..whole.len()).step_by(whole.len() / 31)).map(flip);
    let mut set_aside = 0;
    for (case, bytes) in cuts.chain(flips).enumerate() {
        fs::write(&path, &bytes).unwrap();
        let (mut file, aside) = match HistoryFile::open_or_begin_anew(&path, Limits::default()) {
            Ok(opened) => opened,
            Err(error) => panic!("case {case}: {error}"),
        };
        let Some(aside) = aside else {
            assert_eq!(contents(&file), expected, "case {case}");
            continue;
        };
        set_aside += 1;
        assert_eq!(fs::read(&aside).unwrap(), bytes, "case {case}: it is kept as it was found");
        assert_eq!(contents(&file).len(), 0);
        file.append(&[interaction(key(1, 1, 0), 4, 10, 0)]).unwrap();
        assert_eq!(contents(&file).len(), 1);
        // The second one does not take the first one's place.
        if set_aside > 2 {
            fs::remove_file(&aside).unwrap();
        }
    }
    assert!(set_aside > 20, "{set_aside}");
    assert!(folder.path().join("history.damaged").exists() && folder.path().join("history.damaged.2").exists());
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/history");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let mut file = HistoryFile::open(&path, Limits::default()).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    file.append(&[interaction(key(1, 1, 0), 4, 10, 0)]).unwrap();
    file.purge(&filter(Some(1), None)).unwrap();
    assert_eq!(mode(&path), 0o600);
    drop(file);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    HistoryFile::open(&path, Limits::default()).unwrap();
    assert_eq!(mode(&path), 0o600);
}

/// Not even in the free pages.
#[test]
fn what_is_purged_is_not_in_the_file_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let mut file = HistoryFile::open(&path, Limits::default()).unwrap();
    for seed in 0..20 {
        file.append(&[interaction(key(1, 1, 0), 4, 300, seed), interaction(key(2, 1, 0), 4, 300, 1000 + seed)])
            .unwrap();
    }
    // 300 tokens as they are stored.
    let encoded = |seed| {
        interaction(key(0, 0, 0), 0, 100, seed)
            .text
            .answer()
            .iter()
            .flat_map(|token| {
                let id = token.0;
                if id < 128 {
                    vec![id as u8]
                } else {
                    vec![id as u8 | 0x80, (id >> 7) as u8 | if id >> 14 > 0 { 0x80 } else { 0 }]
                }
            })
            .take(40)
            .collect::<Vec<u8>>()
    };
    let is_there = |seed| fs::read(&path).unwrap().windows(40).any(|window| window == encoded(seed));
    assert!(is_there(5) && is_there(1005));
    file.purge(&filter(Some(1), None)).unwrap();
    assert!(!is_there(5) && is_there(1005));
    assert_eq!(file.list(&Filter::default()).count(), 1);
    file.append(&[interaction(key(1, 1, 0), 4, 300, 5)]).unwrap();
    assert_eq!(contents(&file).len(), 2);
}

#[test]
fn an_export_has_a_line_for_each_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = HistoryFile::open(&folder.path().join("history"), Limits::default()).unwrap();
    let tokens = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<_>>();
    let said =
        |user, model, answer: &[u32]| Interaction::new(key(user, 1, model), &tokens(&[9, 8, 7, 6, 5]), &tokens(answer));
    file.append(&[said(1, 1, &[1, 2]), said(2, 1, &[3]), said(1, 2, &[4])]).unwrap();
    let export = |filter: &Filter| {
        let mut out = Vec::new();
        let text =
            |model, tokens: &[TokenId]| (model == ModelFingerprint(1)).then(|| format!("{} \"tokens\"", tokens.len()));
        let lines = file.export(filter, &mut out, text).unwrap();
        assert_eq!(lines as usize, out.iter().filter(|&&byte| byte == b'\n').count());
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        export(&filter(Some(1), None)),
        r#"{"user":"ann","task":"mail","model":"0000000000000001","sequence":0,"prompt_end":[8,7,6,5],"answer":[1,2],"text":"2 \"tokens\""}
{"user":"ann","task":"mail","model":"0000000000000002","sequence":2,"prompt_end":[8,7,6,5],"answer":[4]}
"#
    );
    assert_eq!(export(&Filter::default()).lines().count(), 3);
    assert_eq!(export(&filter(Some(0), None)), "");
}
