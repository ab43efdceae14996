"""A tiny BERT with a tokenizer in a folder, as Hugging Face keeps them, and texts of three kinds."""

from pathlib import Path

import torch

WORDS = [
    *("cats", "dogs", "birds", "purr", "bark", "sing", "run"),
    *("and", "the", "a", "loudly", "softly", "today", "they"),
]


def tiny_bert(folder: Path) -> Path:
    """Write model and tokenizer files; the weights are random."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: place for place, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(str(folder))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(str(folder))
    return folder


def documents(samples: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return texts about cats, dogs or birds, of different lengths, and what they are about."""
    generator = torch.Generator().manual_seed(seed)
    texts, labels = [], []
    for number in range(samples):
        kind = number % 3
        length = int(torch.randint(1, 9, (1,), generator=generator))
        filler = torch.randint(6, len(WORDS), (length,), generator=generator).tolist()
        texts.append(" ".join([WORDS[kind], WORDS[3 + kind], *(WORDS[place] for place in filler)]))
        labels.append(WORDS[kind])
    return texts, labels
