"""A translation model trained and asked as the common Seq2SeqTrainer scripts do it."""

import numpy as np
import transformers
from tokenizers import Tokenizer, models
from transformers import DataCollatorForSeq2Seq, MarianConfig, MarianMTModel, PreTrainedTokenizerFast
from transformers.trainer_seq2seq import Seq2SeqTrainer
from transformers.training_args_seq2seq import Seq2SeqTrainingArguments


def main():
    (args,) = transformers.HfArgumentParser(Seq2SeqTrainingArguments).parse_args_into_dataclasses()
    words = Tokenizer(
        models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"w{k}": 3 + k for k in range(20)})
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>")
    transformers.set_seed(args.seed)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=23,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_position_embeddings=16,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            forced_eos_token_id=1,
        )
    )
    data = [{"input_ids": [3 + k % 20, 1], "labels": [3 + (k + 1) % 20, 1]} for k in range(18)]

    def compute_metrics(predicted):
        texts = np.where(predicted.predictions < 0, 0, predicted.predictions)
        return {"rows": len(texts), "sum": float(texts.sum())}

    trainer = Seq2SeqTrainer(
        model,
        args,
        DataCollatorForSeq2Seq(tokenizer, model=model),
        train_dataset=data,
        eval_dataset=data[:7],
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    metrics = trainer.evaluate(max_length=4, num_beams=2)
    found = trainer.predict(data[:5], metric_key_prefix="predict", max_length=4)
    rows, total = metrics["eval_rows"], metrics["eval_sum"]
    print(f"{type(trainer).__name__} rows {rows} {found.predictions.shape[0]} sum {total}")


if __name__ == "__main__":
    main()
