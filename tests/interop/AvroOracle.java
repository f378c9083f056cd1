import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Scanner;

import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;

/**
 * What Avro's own library says of schemas. A line of standard input has a schema and those that it imports, each in Base64,
 * between them tabs. Each is answered by the text of the schema in Base64, without what is imported, or by "refused".
 */
public class AvroOracle {
    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String answer(String[] words) {
        try {
            Schema.Parser parser = new Schema.Parser();
            List<Schema> imports = new ArrayList<>();
            for (int at = 1; at < words.length; at++) {
                imports.add(parser.parse(text(words[at])));
            }
            parser.setValidateDefaults(false);
            String said = parser.parse(text(words[0])).toString(imports, false);
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
