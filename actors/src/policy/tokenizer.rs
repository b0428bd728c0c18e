//! Text to token ids and back: any `tokenizer.json`, and one trained on a corpus of kernels.
use std::collections::HashSet;
use std::path::Path;

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::utils::parallelism::set_parallelism;
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use super::PolicyError;
use super::tokenizer_config::TokenizerConfig;

/// Id of `<|endoftext|>`, which ends a completion, in a trained tokenizer.
pub const END_OF_TEXT: u32 = 0;

/// Id of `<|pad|>` in a trained tokenizer.
pub const PAD: u32 = 1;

const FILE: &str = "tokenizer.json";

/// A tokenizer in the form of Hugging Face's library.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Trains byte-level BPE of at most `vocab` entries on `corpus`. The same corpus gives the
    /// same tokenizer.
    ///
    /// Text is split at the end of lines only, so that an entry may be a whole loop header: a
    /// kernel is then some 20 tokens, and what limits a small model is the length of its sequences.
    /// The first ids are `<|endoftext|>`, `<|pad|>` and then `prompts`, a special token for each
    /// problem; then printable ASCII, so that any C is representable; then the merges.
    pub fn train(
        corpus: &[impl AsRef<str> + Sync],
        vocab: usize,
        prompts: &[&str],
    ) -> Result<Self, PolicyError> {
        let specials = ["<|endoftext|>", "<|pad|>"].iter().chain(prompts);
        let specials: Vec<_> = specials.map(|text| AddedToken::from(*text, true)).collect();
        // GPT-2's byte alphabet: printable ASCII is itself; blank, newline and tab are shifted up.
        let alphabet: HashSet<char> = ('!'..='~').chain(['Ġ', 'Ċ', 'ĉ']).collect();
        let smallest = specials.len() + alphabet.len();
        if vocab <= smallest {
            return Err(PolicyError::Tokenizer(format!(
                "a vocabulary of {vocab} has no room for merges beside {smallest} fixed entries"
            )));
        }
        single_threaded();
        let lines = Split::new(
            SplitPattern::String("\n".into()),
            SplitDelimiterBehavior::MergedWithPrevious,
            false,
        )
        .map_err(reject)?;
        let bytes = ByteLevel::new(false, false, false);
        let mut inner = tokenizers::Tokenizer::new(BPE::default());
        inner.with_pre_tokenizer(Some(PreTokenizerWrapper::Sequence(Sequence::new(vec![
            PreTokenizerWrapper::Split(lines),
            PreTokenizerWrapper::ByteLevel(bytes),
        ]))));
        inner.with_decoder(Some(bytes));
        let mut trainer = TrainerWrapper::BpeTrainer(
            BpeTrainer::builder()
                .vocab_size(vocab)
                .min_frequency(2)
                .show_progress(false)
                .special_tokens(specials)
                .initial_alphabet(alphabet)
                .build(),
        );
        inner
            .train(&mut trainer, corpus.iter().map(AsRef::as_ref))
            .map_err(reject)?;
        Ok(Self { inner })
    }

    /// Reads `tokenizer.json` in `dir`, and the tokens that only `tokenizer_config.json` names.
    pub fn load(dir: &Path) -> Result<Self, PolicyError> {
        let path = dir.join(FILE);
        let bytes = std::fs::read(&path).map_err(PolicyError::reading(&path))?;
        let named = |error: PolicyError| match error {
            PolicyError::Tokenizer(reason) => {
                PolicyError::Tokenizer(format!("{}: {reason}", path.display()))
            }
            other => other,
        };
        let mut tokenizer = Self::from_bytes(&bytes).map_err(named)?;
        for (id, token) in TokenizerConfig::read(dir)?.added {
            tokenizer.add(id, token).map_err(named)?;
        }
        Ok(tokenizer)
    }

    fn add(&mut self, id: u32, token: AddedToken) -> Result<(), PolicyError> {
        let text = token.content.clone();
        if self.inner.token_to_id(&text) == Some(id) {
            return Ok(());
        }
        self.inner.add_tokens([token]).map_err(reject)?;
        match self.inner.token_to_id(&text) {
            Some(found) if found == id => Ok(()),
            found => Err(PolicyError::Tokenizer(format!(
                "tokenizer_config.json gives `{text}` the id {id}, here it has {found:?}: the two files are of \
                 different models"
            ))),
        }
    }

    /// Takes the contents of a `tokenizer.json`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PolicyError> {
        single_threaded();
        let inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(reject)?;
        Ok(Self { inner })
    }

    /// The contents of a `tokenizer.json`.
    pub fn to_json(&self) -> Result<String, PolicyError> {
        self.inner.to_string(true).map_err(reject)
    }

    /// Writes `tokenizer.json` into `dir`.
    pub fn save(&self, dir: &Path) -> Result<(), PolicyError> {
        std::fs::create_dir_all(dir).map_err(PolicyError::io("create", dir))?;
        let path = dir.join(FILE);
        std::fs::write(&path, self.to_json()?).map_err(PolicyError::io("write", &path))
    }

    /// Number of ids, special tokens included: a model needs at least as many rows.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The id of a token as it is spelled in the vocabulary, such as a prompt's special token.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The ids of `text`; special tokens spelled in it become their ids, none is added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, PolicyError> {
        Ok(self
            .inner
            .encode_fast(text, false)
            .map_err(reject)?
            .get_ids()
            .to_vec())
    }

    /// The text of `ids`, without special tokens. An id that has no text gives none.
    pub fn decode(&self, ids: &[u32]) -> Result<String, PolicyError> {
        self.inner.decode(ids, true).map_err(reject)
    }

    /// The text of `ids`, special tokens spelled out.
    pub fn decode_all(&self, ids: &[u32]) -> Result<String, PolicyError> {
        self.inner.decode(ids, false).map_err(reject)
    }
}

/// The library would start a thread for each core; held cores are not its to use, and a kernel is
/// tokenized in microseconds.
fn single_threaded() {
    set_parallelism(false);
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn reject(error: tokenizers::Error) -> PolicyError {
    PolicyError::Tokenizer(error.to_string())
}
