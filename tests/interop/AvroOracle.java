import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Scanner;

import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/**
 * What Avro's own library says of schemas. A line of standard input has a word and schemas in Base64, between them tabs. After
 * "text" a schema and those that it imports: the answer is its text in Base64, without what is imported, or "refused". After
 * "verdict" a reader and a writer: the answer is "compatible", "incompatible", or "refused" if one is no schema.
 */
public class AvroOracle {
    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String verdict(String reader, String writer) {
        Schema mine;
        Schema theirs;
        try {
            mine = new Schema.Parser().parse(text(reader));
            theirs = new Schema.Parser().parse(text(writer));
        } catch (AvroRuntimeException invalid) {
            return "refused";
        }
        try {
            return SchemaCompatibility.checkReaderWriterCompatibility(mine, theirs).getType().toString().toLowerCase();
        } catch (AvroRuntimeException ambiguous) {
            return "incompatible";
        }
    }

    private static String answer(String[] words) {
        if (words[0].equals("verdict")) {
            return verdict(words[1], words[2]);
        }
        try {
            Schema.Parser parser = new Schema.Parser();
            List<Schema> imports = new ArrayList<>();
            for (int at = 2; at < words.length; at++) {
                imports.add(parser.parse(text(words[at])));
            }
            parser.setValidateDefaults(false);
            String said = parser.parse(text(words[1])).toString(imports, false);
            return Base64.getEncoder().encodeToString(said.getBytes(StandardCharsets.UTF_8));
        } catch (AvroRuntimeException invalid) {
            return "refused";
        }
    }

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            System.out.println(answer(lines.nextLine().split("\t")));
        }
    }
}
