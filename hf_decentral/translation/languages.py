"""Languages of multilingual tokenizers: mBART, NLLB and M2M100 are told which two they are given."""

from __future__ import annotations

import difflib
import re
from typing import Any

from hf_decentral.errors import translation as errors

# de_DE and en_XX of mBART, deu_Latn of NLLB, whose tokenizer lists them among its special tokens only.
CODE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]+")
NEAR = 5


def set_languages(tokenizer: Any, source_lang: str, target_lang: str) -> None:
    """Tell a multilingual tokenizer its two languages; others, which have no codes, are left as they are.

    Args:
        tokenizer: any tokenizer of transformers; changed in place.
        source_lang: the tokenizer's own code (``de_DE``), or the part before the region where only one code
            has it (``de`` with mBART).
        target_lang: likewise.

    Raises:
        SettingsError: the tokenizer has language codes, and this is none of them.
    """
    if _codes(tokenizer):
        tokenizer.src_lang = _code(tokenizer, source_lang)
        tokenizer.tgt_lang = _code(tokenizer, target_lang)


def language_id(tokenizer: Any, language: str) -> int | None:
    """The token with which a multilingual decoder begins a sentence of ``language``; None: there is none.

    It is the ``forced_bos_token_id`` of a generation, or mBART's ``decoder_start_token_id``.

    Raises:
        SettingsError: the tokenizer has language codes, and this is none of them.
    """
    if not _codes(tokenizer):
        return None
    code = _code(tokenizer, language)
    numbers = getattr(tokenizer, "lang_code_to_id", None)
    return int(numbers[code] if numbers else tokenizer.convert_tokens_to_ids(code))


def _codes(tokenizer: Any) -> list[str]:
    numbers = getattr(tokenizer, "lang_code_to_id", None)
    if numbers:
        return sorted(numbers)
    if not hasattr(tokenizer, "src_lang"):
        return []
    return sorted(token for token in tokenizer.all_special_tokens if CODE.fullmatch(token))


def _code(tokenizer: Any, language: str) -> str:
    known = _codes(tokenizer)
    if language in known:
        return language
    regions = [code for code in known if code.split("_")[0] == language]
    if len(regions) == 1:
        return regions[0]
    begins = [code for code in known if code[:2].lower() == language[:2].lower()]
    folded = {code.lower(): code for code in known}
    close = [folded[code] for code in difflib.get_close_matches(language.lower(), folded, n=NEAR, cutoff=0.5)]
    near = list(dict.fromkeys([*regions, *close, *begins]))[:NEAR]
    raise errors.unknown_language(type(tokenizer).__name__, language, near, len(known))
